"""The single writer of a job's rollout events: its transactional id lets a newer writer fence older ones.

A desk opens the writer, reads the topic to its end, and commits. If another desk has opened the writer since,
the commit fails and nothing is written. So every event is written by a desk that has read all earlier events.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from models.rollouts.events import Event
from service.rollouts.errors import FencedError, UnansweredError
from service.security.audit_log import PARTITION
from service.settings import ServiceSettings
from streaming_job.log import clients
from streaming_job.log.clients import describe

TIMEOUT_S = 30.0
FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)


@dataclass(frozen=True)
class ExtraRecord:
    """An audit record in the events' Kafka transaction."""

    topic: str
    key: bytes
    value: bytes


def transactional_id(job_id: str) -> str:
    """Return the transactional id of the single writer."""
    return f"{job_id}-rollouts"


class RolloutWriter:
    """The open writer, which has fenced older writers of the same job."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Open the writer.

        Raises:
            FencedError: another writer was opened at the same time.
            UnansweredError: the brokers do not answer.
        """
        self._settings = settings
        try:
            self._producer = clients.producer(
                settings,
                tuning={"transaction.timeout.ms": int(TIMEOUT_S * 1000)},
                fixed={"transactional.id": transactional_id(settings.job_id)},
            )
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as fault:
            raise self._refused(fault) from fault

    def write(self, events: Sequence[Event], extra: Sequence[ExtraRecord] = ()) -> list[int]:
        """Write events and further records in one transaction; return the events' offsets.

        Raises:
            FencedError: another writer has been opened since; nothing was written.
            UnansweredError: the brokers do not answer; repeat the request with the same idempotency key to
                learn whether it was written.
        """
        offsets: dict[int, int] = {}
        topic = self._settings.topics.model_rollouts
        try:
            self._producer.begin_transaction()
            for number, event in enumerate(events):

                def delivered(error: object, message: object, number: int = number) -> None:
                    if error is None:
                        offsets[number] = message.offset()  # type: ignore[attr-defined]

                self._producer.produce(
                    topic, event.to_json(), event.rollout_id.encode(), partition=0, on_delivery=delivered
                )
            for record in extra:
                # by its key it would miss the chain in a topic with more partitions
                self._producer.produce(record.topic, record.value, record.key, partition=PARTITION)
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as fault:
            raise self._refused(fault) from fault
        return [offsets[number] for number in range(len(events))]

    def _refused(self, fault: KafkaException) -> FencedError | UnansweredError:
        if fault.args[0].code() in FENCED:
            return FencedError()
        return UnansweredError(
            "brokers",
            f"{self._settings.topics.model_rollouts} at {self._settings.bootstrap_servers} did not "
            f"confirm the event: {describe(fault)}; check the brokers, then retry with the same idempotency "
            "key",
        )
