"""Publishing of events to the model-rollouts topic."""

from collections.abc import Sequence

from confluent_kafka import KafkaException

from models.errors import ModelError
from models.rollouts.events import Event
from streaming_job.log import clients
from streaming_job.log.clients import Address

DELIVERY_TIMEOUT_S = 30.0


def publish(
    events: Sequence[Event],
    bootstrap_servers: str,
    topic: str,
    kafka: dict[str, str] | None = None,
    *,
    timestamp_ms: int | None = None,
) -> None:
    """Write events in their order and wait until every in-sync replica has them.

    Args:
        events: events of one rollout.
        kafka: more client settings (librdkafka names).
        timestamp_ms: the records' timestamp, for replays into a CreateTime topic; default: now.

    Raises:
        ModelError: the client refuses its settings, or an event is refused or not acknowledged in time.
    """
    failures: list[str] = []

    def delivered(error: object, _record: object) -> None:
        if error is not None:
            failures.append(str(error))

    target = f"topic {topic} at {bootstrap_servers}"
    values = [event.to_json() for event in events]
    try:
        tuning = {"message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000)}
        producer = clients.producer(Address(bootstrap_servers, kafka or {}), tuning=tuning)
        for event, value in zip(events, values, strict=True):
            producer.produce(
                topic,
                key=event.rollout_id,
                value=value,
                partition=0,  # the only one that the job reads
                on_delivery=delivered,
                timestamp=timestamp_ms or 0,  # 0 means now
            )
        undelivered = producer.flush(DELIVERY_TIMEOUT_S + 5.0)
    except KafkaException as error:
        raise ModelError(f"the event cannot be written to {target}: {error}; check the settings") from error
    if undelivered or failures:
        reason = failures[0] if failures else "no answer"
        raise ModelError(
            f"the event is not known to be written to {target}: {reason}; check the brokers, then repeat "
            "the command"
        )
