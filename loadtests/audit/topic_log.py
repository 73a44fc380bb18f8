"""Reads topics from their beginning as any bank's consumer would: read_committed, with its own client."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from feature_store.errors import FraudError
from loadtests.oracle.records import Record

FETCH = 5_000
"""Records per call of the client."""
POLL_S = 0.2
SILENCE_S = 60.0
"""No record and no end of a partition for so long: the broker is gone."""
TIMEOUT_S = 30.0
STARTING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""What a broker says while it makes or loads the topic of committed offsets."""


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _committed(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return consumer.committed(asked, TIMEOUT_S)
        except KafkaException as fault:
            if fault.args[0].code() not in STARTING or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


class TopicReadError(FraudError):
    """A topic cannot be read to its end."""


class MissingTopicError(TopicReadError):
    """A topic does not exist."""


class Log(Protocol):
    """What an audit needs of a broker."""

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> offset that a consumer group reads next; only where it has committed one."""
        ...

    def ends(self, topic: str) -> dict[int, int]:
        """First offset after each partition's last committed record."""
        ...

    def beginnings(self, topic: str) -> dict[int, int]:
        """First offset of each partition that retention has left."""
        ...

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        """Committed records, each partition in the order of offsets; from `starts` up to before `ends`."""
        ...


class TopicLog:
    """The log as a broker holds it."""

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, str] | None = None) -> None:
        self._servers = bootstrap_servers
        self._client: dict[str, Any] = {
            "log_level": 0,
            **(kafka or {}),
            "bootstrap.servers": bootstrap_servers,
        }
        self._asked: dict[tuple[str, str], Consumer] = {}
        """Consumers that are asked for offsets and read nothing; to make one costs a quarter of a second."""

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> offset that a consumer group reads next; only where it has committed one.

        Raises:
            TopicReadError: no answer.
        """
        # an admin client crashes while the coordinator of the group starts (librdkafka #5040); a reader of
        # committed records only would wait for the transaction that a killed job has left open
        consumer = self._asker(group, "read_uncommitted")
        try:
            asked = [TopicPartition(name, p) for name in topics for p in self._partitions(consumer, name)]
            found = _committed(consumer, asked)
        except KafkaException as fault:
            raise self._unreadable("the job's offsets", fault) from fault
        return {(part.topic, part.partition): part.offset for part in found if part.offset >= 0}

    def ends(self, topic: str) -> dict[int, int]:
        """First offset after each partition's last committed record.

        Raises:
            TopicReadError: no such topic, or no answer.
        """
        return self._watermarks(topic, 1)

    def beginnings(self, topic: str) -> dict[int, int]:
        """First offset of each partition that retention has left.

        Raises:
            TopicReadError: no such topic, or no answer.
        """
        return self._watermarks(topic, 0)

    def _watermarks(self, topic: str, which: int) -> dict[int, int]:
        consumer = self._asker()
        try:
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)[which]
                for partition in self._partitions(consumer, topic)
            }
        except KafkaException as fault:
            raise self._unreadable(f"topic {topic}", fault) from fault

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        """Committed records, each partition in the order of offsets, partitions mixed.

        Args:
            topic: name.
            ends: first offset not to read by partition, 0 for those not named; default: all there is when
                the reader gets there.
            starts: first offset to read by partition; default: from the beginning.

        Raises:
            TopicReadError: no such topic, or the broker fell silent.
        """
        starts = starts or {}
        consumer = self._consumer()
        try:
            partitions = self._partitions(consumer, topic)
            left = {p for p in partitions if ends is None or ends.get(p, 0) > starts.get(p, 0)}
            consumer.assign([TopicPartition(topic, p, starts.get(p, OFFSET_BEGINNING)) for p in left])
            silent = 0.0
            while left:
                # consume() blocks until it has all messages asked for: take what is buffered, or wait for one
                messages = consumer.consume(FETCH, 0) or consumer.consume(1, POLL_S)
                silent = 0.0 if messages else silent + POLL_S
                if silent > SILENCE_S:
                    raise TopicReadError(f"topic {topic} cannot be read to its end; check the brokers")
                for message in messages:
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    record = _record(message)
                    if record.partition not in left:
                        continue
                    end = math.inf if ends is None else ends[record.partition]
                    if error is None and record.offset < end:
                        yield record
                    if error is not None or record.offset >= end - 1:
                        left.discard(record.partition)
                        consumer.pause([TopicPartition(topic, record.partition)])
        except KafkaException as fault:
            raise self._unreadable(f"topic {topic}", fault) from fault
        finally:
            consumer.close()

    def _asker(self, group: str = "fraud-audit", isolation: str = "read_committed") -> Consumer:
        if (group, isolation) not in self._asked:
            self._asked[group, isolation] = self._consumer(group, isolation)
        return self._asked[group, isolation]

    def _consumer(self, group: str = "fraud-audit", isolation: str = "read_committed") -> Consumer:
        return Consumer(
            {
                "group.id": group,  # never joined: partitions are assigned
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
                # librdkafka reports the end of a partition only after a fetch that came back empty
                "fetch.wait.max.ms": 10,
                "queued.max.messages.kbytes": 65_536,
                **self._client,
            }
        )

    def _partitions(self, consumer: Consumer, topic: str) -> list[int]:
        found = consumer.list_topics(topic, TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise MissingTopicError(
                f"topic {topic} does not exist at {self._servers}; check FRAUD_TOPICS__..."
            )
        return sorted(found.partitions)

    def _unreadable(self, what: str, fault: KafkaException) -> TopicReadError:
        error = fault.args[0] if fault.args else fault
        text = error.str() if isinstance(error, KafkaError) else error
        return TopicReadError(f"{what} cannot be read at {self._servers}: {text}; check address and brokers")
