"""The one writer of a job's rollout events: a transactional id that a newer writer takes from an older one.

A desk that is to write opens it, reads the topic to its end, and commits. If another has opened it since, the
commit fails and nothing was written: each event is written by one who has read all events before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer

from models.rollouts.events import Event
from service.rollouts.errors import StaleError, UnansweredError
from service.settings import ServiceSettings, say

TIMEOUT_S = 30.0
FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)


@dataclass(frozen=True)
class Line:
    """A record that goes into the same transaction as the events, for example of the audit."""

    topic: str
    key: bytes
    value: bytes


def transactional_id(job_id: str) -> str:
    """Of the one writer."""
    return f"{job_id}-rollouts"


class RolloutWriter:
    """The writer, opened: older ones of the same job cannot commit any more."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Open it.

        Raises:
            StaleError: another has been opened in this moment.
            UnansweredError: the brokers do not answer.
        """
        self._settings = settings
        try:
            self._producer = Producer(
                settings.client(
                    **{
                        "transactional.id": transactional_id(settings.job_id),
                        "transaction.timeout.ms": int(TIMEOUT_S * 1000),
                    }
                )
            )
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as fault:
            raise self._refused(fault) from fault

    def write(self, events: Sequence[Event], lines: Sequence[Line] = ()) -> list[int]:
        """Write events, and what goes with them, in one transaction; returns the events' offsets.

        Raises:
            StaleError: another writer has been opened since; nothing was written.
            UnansweredError: the brokers do not answer; a repetition with the same idempotency key tells
                whether it was written.
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
            for line in lines:
                self._producer.produce(line.topic, line.value, line.key)
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as fault:
            raise self._refused(fault) from fault
        return [offsets[number] for number in range(len(events))]

    def _refused(self, fault: KafkaException) -> StaleError | UnansweredError:
        if fault.args[0].code() in FENCED:
            return StaleError(
                "race", "another writer of rollouts came in between, nothing was written; look, then repeat"
            )
        return UnansweredError(
            "brokers",
            f"{self._settings.topics.model_rollouts} at {self._settings.bootstrap_servers} did not take the "
            f"event: {say(fault)}; check the brokers, then repeat it with the same idempotency key",
        )
