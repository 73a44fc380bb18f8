"""The audit log's topic, and that of refusals, of one partition each; read on request."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, Message, TopicPartition

from service.security.audit import AuditError
from service.settings import ServiceSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Consumer

PARTITION = 0
START_S = 5.0
"""Longest wait for the brokers at the start of the sidecar."""


class NoAuditError(LookupError):
    """The installation has no audit log."""


@dataclass(frozen=True)
class StoredRecord:
    """A record of the log."""

    offset: int
    value: bytes
    chain: bytes = b""
    """Of a refusal: id of the chain to which it belongs."""


class AuditLog:
    """Reader of one of the topics; each call uses its own consumer, and raises its KafkaException."""

    def __init__(self, settings: ServiceSettings, topic: str = "") -> None:
        """Create a reader without connecting; by default of the audit log."""
        self._settings = settings
        self._topic = topic or settings.topics.audit_log

    def all(self) -> Iterator[StoredRecord]:
        """Yield every record, oldest first; none if the topic does not exist."""
        with _reading(self._settings) as reader:
            if topic_reader.exists(reader, self._topic):
                yield from map(_stored, follow.to_end(reader, TopicPartition(self._topic, PARTITION, 0)))

    def last(self) -> bytes | None:
        """Return the value of the newest record, to which the next one refers; None without records.

        Raises:
            NoAuditError: the topic does not exist.
        """
        with _reading(self._settings) as reader:
            topic_reader.require(reader, [self._topic], NoAuditError)
            last = follow.newest(reader, TopicPartition(self._topic, PARTITION))
            return _stored(last[0]).value if last else None

    def newest(self, limit: int, before: int | None = None) -> list[StoredRecord]:
        """Return the newest records, newest first."""
        with _reading(self._settings) as reader:
            if not topic_reader.exists(reader, self._topic):
                return []
            records = follow.newest(reader, TopicPartition(self._topic, PARTITION), limit, before=before)
            return [_stored(message) for message in reversed(records)]


def require_topics(settings: ServiceSettings) -> None:
    """Raise AuditError if a topic of changes or refusals does not exist; silent brokers are no fault here."""
    topics = settings.topics.audit_log, settings.topics.audit_refusals
    with _reading(settings) as reader, suppress(KafkaException):
        topic_reader.require(reader, topics, _unaudited, START_S)


def _unaudited(why: str) -> AuditError:
    return AuditError(f"changes of rollouts could not be audited: {why}")


def _reading(settings: ServiceSettings) -> closing[Consumer]:
    return closing(clients.reader(settings, f"{settings.job_id}-audit"))


def _stored(message: Message) -> StoredRecord:
    key = message.key()
    return StoredRecord(message.offset() or 0, message.value() or b"", key if isinstance(key, bytes) else b"")
