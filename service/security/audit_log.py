"""The audit log's topic: one partition, kept for ever, read by those who ask."""

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition

from service.settings import ServiceSettings
from streaming_job.log import topic_reader

PARTITION = 0
PER_RECORD = 4
"""Offsets looked at for each record that is wanted: each transaction has a mark beside its record."""


class NoAuditError(LookupError):
    """The installation has no audit log."""


@dataclass(frozen=True)
class Stored:
    """A record of the log."""

    offset: int
    value: bytes


class AuditLog:
    """Reads the topic; each call with a consumer of its own."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.audit_log

    def all(self) -> Iterator[Stored]:
        """Every record, oldest first; none if there is no such topic.

        Raises:
            KafkaException: no answer.
        """
        with _Reading(self._settings) as reader:
            if topic_reader.exists(reader, self._topic):
                yield from map(
                    _stored, topic_reader.to_end(reader, TopicPartition(self._topic, PARTITION, 0))
                )

    def last(self) -> bytes | None:
        """Value of the newest record, from which the next one follows; None if there is none.

        Raises:
            NoAuditError: there is no such topic.
            KafkaException: no answer.
        """
        with _Reading(self._settings) as reader:
            if not topic_reader.exists(reader, self._topic):
                raise NoAuditError(f"there is no topic {self._topic}; `fraud job topics` makes it")
            found = topic_reader.newest(reader, self._topic, PARTITION)
            return None if found is None else _stored(found).value

    def newest(self, limit: int, before: int | None = None) -> list[Stored]:
        """The newest records, newest first.

        Args:
            limit: at most so many.
            before: of those before this offset; default: of all.

        Raises:
            KafkaException: no answer.
        """
        with _Reading(self._settings) as reader:
            if not topic_reader.exists(reader, self._topic):
                return []
            first, end = topic_reader.offsets(reader, TopicPartition(self._topic, PARTITION))
            end = end if before is None else min(before, end)
            back = limit * PER_RECORD
            while end > first:
                start = TopicPartition(self._topic, PARTITION, max(first, end - back))
                found = [_stored(one) for one in topic_reader.to_end(reader, start)]
                found = [one for one in found if one.offset < end]
                if len(found) >= limit or start.offset == first:
                    return found[::-1][:limit]
                back *= 10
            return []


class _Reading:
    """A consumer that is closed at the end."""

    def __init__(self, settings: ServiceSettings) -> None:
        name = f"{settings.job_id}-audit"
        self._reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, name)

    def __enter__(self) -> Consumer:
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _stored(message: Message) -> Stored:
    return Stored(message.offset() or 0, message.value() or b"")
