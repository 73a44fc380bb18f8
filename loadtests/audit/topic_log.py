"""Reader of whole topics: an ordinary read_committed consumer, independent of the job's client."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from feature_store.errors import FraudError
from loadtests.oracle.records import Record
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Address, Consumer, describe
from streaming_job.log.follow import RETRIED, Follower
from streaming_job.log.records import PartitionId

NAME = "fraud-audit"
SILENCE_S = 60.0
"""The broker is considered lost if it sends neither a record nor an end-of-partition event for this long."""
TIMEOUT_S = 30.0
MARKERS_S = 5.0
"""Longest time for which a read to a topic's end waits for transactions that are being committed."""
POLL_S = 0.02


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


class TopicReadError(FraudError):
    """An audit does not find a topic, or cannot read it to its end.

    Check `FRAUD_TOPICS__...` and the brokers; create a missing topic.
    """


class Log(Protocol):
    """The reads that an audit needs of a broker."""

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[PartitionId, int]:
        """Return (topic, partition) -> committed offset of a consumer group, where it has committed one."""
        ...

    def ends(self, topic: str) -> dict[int, int]:
        """Return the last stable offset of each partition."""
        ...

    def beginnings(self, topic: str) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        ...

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        """Yield committed records from `starts` to before `ends`, each partition in the order of offsets."""
        ...


class TopicLog:
    """The topics of a broker.

    Its methods raise TopicReadError if there is no such topic, or the broker refuses or does not answer.
    """

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, str] | None = None) -> None:
        self._servers, self._brokers = bootstrap_servers, Address(bootstrap_servers, kafka or {})
        self._offset_consumers: dict[tuple[str, bool], Consumer] = {}
        """Consumers that only fetch offsets, by group and `committed_only`; creating one takes 0.25 s."""

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[PartitionId, int]:
        """Return (topic, partition) -> committed offset of a consumer group, where it has committed one."""
        # not an admin client, which crashes while the group's coordinator starts (librdkafka #5040); not a
        # read_committed consumer, which would wait for the transaction that a killed job has left open
        consumer = self._offset_consumer(group, committed_only=False)
        try:
            partitions = [
                TopicPartition(name, p) for name in topics for p in self._partitions(consumer, name)
            ]
            committed = topic_reader.answered(
                lambda step_s: consumer.committed(partitions, step_s), RETRIED, TIMEOUT_S
            )
        except KafkaException as fault:
            raise self._unreadable("the job's offsets", fault) from fault
        return {(part.topic, part.partition): part.offset for part in committed if part.offset >= 0}

    def ends(self, topic: str) -> dict[int, int]:
        """Return the last stable offset of each partition."""
        return self._watermarks(topic, 1)

    def unreadable(self, topic: str) -> int:
        """Count the offsets beyond the last stable ones: a transaction is open, and hides what follows."""
        stable = self.ends(topic)
        return sum(self._watermarks(topic, 1, committed_only=False).values()) - sum(stable.values())

    def beginnings(self, topic: str) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        return self._watermarks(topic, 0)

    def _watermarks(self, topic: str, which: int, *, committed_only: bool = True) -> dict[int, int]:
        consumer = self._offset_consumer(committed_only=committed_only)
        try:
            return {
                partition: topic_reader.offsets(consumer, TopicPartition(topic, partition))[which]
                for partition in self._partitions(consumer, topic)
            }
        except KafkaException as fault:
            raise self._unreadable(f"topic {topic}", fault) from fault

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        """Yield committed records, each partition in the order of offsets; partitions are interleaved.

        Args:
            ends: first offset not to read, by partition; a partition without one is not read. Default: read
                each partition until the broker reports its end, records that were written meanwhile included.
                What the topic has now is waited for: a commit is answered before it can be read everywhere,
                because its markers are written afterwards.
            starts: first offset to read, by partition; default: the beginning.

        Raises:
            TopicReadError: no such topic, records between `starts` and `ends` were deleted, or the broker
                refuses or stops answering.
        """
        starts, before = starts or {}, {(topic, part): end for part, end in (ends or {}).items()}
        # retention may delete records while others are read: the client would pass them over. Without an end,
        # only a transaction marker may have been left after `starts`
        fixed = {"auto.offset.reset": "error"} if starts and ends is not None else None
        if ends is None:
            self._await_markers(topic)
        try:
            with closing(clients.reader(self._brokers, NAME, fixed=fixed)) as reader:
                wanted = [
                    TopicPartition(topic, part, starts.get(part, OFFSET_BEGINNING))
                    for part in self._partitions(reader, topic)
                    if ends is None or ends.get(part, 0) > starts.get(part, 0)
                ]
                yield from map(_record, Follower(reader, wanted, before).to_end(SILENCE_S))
        except KafkaException as fault:
            raise self._unreadable(f"topic {topic}", fault) from fault

    def _await_markers(self, topic: str) -> None:
        written = self._watermarks(topic, 1, committed_only=False)
        waited_until = time.monotonic() + MARKERS_S  # a killed job leaves its transaction open for longer
        while any(end < written.get(partition, 0) for partition, end in self.ends(topic).items()):
            if time.monotonic() >= waited_until:
                return
            time.sleep(POLL_S)

    def _offset_consumer(self, group: str = NAME, *, committed_only: bool = True) -> Consumer:
        kind = group, committed_only
        if kind not in self._offset_consumers:
            self._offset_consumers[kind] = clients.reader(self._brokers, group, committed_only=committed_only)
        return self._offset_consumers[kind]

    def _partitions(self, consumer: Consumer, topic: str) -> list[int]:
        try:
            return topic_reader.answered(
                lambda step_s: topic_reader.partitions(consumer, topic, step_s), RETRIED, TIMEOUT_S
            )
        except KafkaException as fault:
            if topic_reader.is_missing(fault):
                raise TopicReadError(
                    f"topic {topic} does not exist at {self._servers}; check FRAUD_TOPICS__..."
                ) from fault
            raise

    def _unreadable(self, subject: str, fault: KafkaException) -> TopicReadError:
        return TopicReadError(
            f"{subject} cannot be read at {self._servers}: {describe(fault)}; check address and brokers"
        )
