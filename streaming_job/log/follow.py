"""The follower: reads partitions from given offsets on, as records arrive or up to the ends; in no group.

One rule for errors: the client reconnects by itself, so errors of connections are passed over; `to_end` fails
if nothing arrives for its patience. A caller that must be able to stop calls `poll`, which waits a moment.
A partition that cannot be read raises a KafkaException, and so does a broker that does not answer.

A fetch may report the end of a partition too early: the broker that answers it may not know the newest
records yet, if it is a new leader, or a follower near the client (`client.rack`). Therefore the leader
confirms each end. It refuses to name one until it knows all that was committed before it was elected
(KIP-207).
"""

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from streaming_job.log.clients import Consumer, describe
from streaming_job.log.records import PartitionId
from streaming_job.log.topic_reader import offsets, partitions
from streaming_job.runtime import pauses

log = logging.getLogger(__name__)
POLL_S = 0.2
PATIENCE_S = 15.0
AT_ONCE = 500
"""Maximal number of records that `poll` returns."""
BUFFERED = 5_000
"""Maximal number of records that `to_end` takes at once from those that the client has fetched."""
NEW_PARTITIONS_S = 10.0
"""Interval at which new partitions are looked up."""
LOOK_UP_S = 1.0
"""Longest time that a look-up of new partitions takes away from reading, for each topic."""
FAILED = 3
"""Number of look-ups in a row that fail before that counts as trouble: a broker may be away for a moment."""
OFFSETS_BACK = 10
"""Offsets for each record that is looked for, at which the search for the newest ones begins."""
GROWTH = 100
STARTING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors while the broker creates or loads the topic of committed offsets, which no reader needs."""
RETRIED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, *STARTING)
"""Errors that the client reports while it reconnects by itself."""


class Follower:
    """A reader of partitions: their records are interleaved, those of one partition in order of offsets."""

    def __init__(
        self,
        reader: Consumer,
        starts: Sequence[TopicPartition],
        ends: Mapping[PartitionId, int] | None = None,
    ) -> None:
        """Begin to fetch.

        Args:
            reader: consumer that joined no group (`clients.reader`); its assignment changes.
            starts: offset at which each partition begins, or OFFSET_BEGINNING.
            ends: offsets before which `to_end` stops; a partition that has none is read to its end, records
                that were written meanwhile included.
        """
        self._reader, self._ends = reader, dict(ends or {})
        self._known = {(start.topic, start.partition) for start in starts}
        self._looked_up, self._failed = time.monotonic(), 0
        self.trouble: str | None = None
        """Why records of new partitions may be missing; None if the last look-ups have not failed."""
        self._confirmed: set[PartitionId] = set()
        """Partitions whose end a leader has named."""
        self.behind: set[PartitionId] = {
            (start.topic, start.partition)
            for start in starts
            if start.offset < self._ends.get((start.topic, start.partition), start.offset + 1)
        }
        """Partitions that have not been read to their end since the start."""
        assigned = [start for start in starts if (start.topic, start.partition) in self.behind]
        reader.assign(assigned)
        reader.resume(assigned)  # what an earlier follower has paused stays so

    def poll(self, wait_s: float = POLL_S) -> list[Message]:
        """Return new records: after `wait_s`, or AT_ONCE of them earlier.

        A partition that is added to a topic is read from its beginning, NEW_PARTITIONS_S later at most unless
        the look-up fails. Then it is repeated after this time; `trouble` and the log say so.

        Raises:
            KafkaException: a partition cannot be read, for example because its topic does not exist; or the
                client lacks a permission, or has failed for good.
        """
        self._add_new_partitions()
        records = []
        for message in self._reader.consume(AT_ONCE, wait_s):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                partition = partition_of(message)
                if partition in self.behind and self._is_end(partition, message.offset() or 0):
                    self.behind.discard(partition)
            elif error.code() not in RETRIED:
                raise KafkaException(error)
        return records

    def to_end(self, patience_s: float = PATIENCE_S) -> Iterator[Message]:
        """Yield the records up to the ends.

        Args:
            patience_s: longest time without an answer.

        Raises:
            KafkaException: no answer, or a partition cannot be read.
            StoppedError: the job was told to stop while no record arrived; see `pauses.look`.
        """
        answered = time.monotonic()
        while self.behind:
            # `consume` waits until it has as many as requested: take the fetched ones, or wait for one
            messages = self._reader.consume(BUFFERED, 0) or self._reader.consume(1, POLL_S)
            if not messages:
                pauses.look()
            for message in messages:
                error = message.error()
                if error is not None and error.code() in RETRIED:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                partition, offset = partition_of(message), message.offset() or 0
                if partition not in self.behind:
                    continue
                end = self._ends.get(partition, math.inf)
                if self._is_end(partition, offset) if error is not None else offset >= end - 1:
                    self.behind.discard(partition)
                    if self.behind:
                        self._reader.pause([TopicPartition(*partition)])
                if error is None and offset < end:
                    yield message
                answered = time.monotonic()
            if time.monotonic() > answered + patience_s:
                waiting = ", ".join(sorted({topic for topic, _ in self.behind}))
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer about {waiting}"))

    def _add_new_partitions(self) -> None:
        now = time.monotonic()
        if now - self._looked_up <= NEW_PARTITIONS_S:
            return
        self._looked_up = now
        present: set[PartitionId] = set()
        fault = None
        for topic in sorted({topic for topic, _ in self._known}):
            try:
                present |= {(topic, partition) for partition in partitions(self._reader, topic, LOOK_UP_S)}
            except KafkaException as error:
                fault = f"new partitions of {topic} cannot be looked up, and are not read: {describe(error)}"
        self._failed = 0 if fault is None else self._failed + 1
        self.trouble = fault if self._failed >= FAILED else None
        if self._failed == FAILED:
            log.warning("%s; it is tried again every %.0f s", fault, NEW_PARTITIONS_S)
        if new := present - self._known:
            self._reader.incremental_assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in sorted(new)])
            self._known |= new
            self.behind |= new

    def _is_end(self, partition: PartitionId, offset: int) -> bool:
        """Return whether a partition ends at an offset at which a fetch reports its end."""
        if partition not in self._confirmed and offset < self._ends.get(partition, math.inf):
            _, end = offsets(self._reader, TopicPartition(*partition))
            self._ends[partition] = min(end, self._ends.get(partition, end))
            self._confirmed.add(partition)
        return offset >= self._ends[partition]


def to_end(reader: Consumer, start: TopicPartition, end: int | None = None) -> Iterator[Message]:
    """Yield the records of one partition from an offset to its end, or to before `end`."""
    ends = {} if end is None else {(start.topic, start.partition): end}
    return Follower(reader, [start], ends).to_end()


def first_arrival(reader: Consumer, start: TopicPartition) -> int | None:
    """Return the arrival of a partition's first record from an offset on, ms; None: there is none."""
    message = next(to_end(reader, start), None)
    return None if message is None else message.timestamp()[1]


def newest(
    reader: Consumer,
    partition: TopicPartition,
    most: int = 1,
    before: int | None = None,
) -> list[Message]:
    """Return the last records of a partition, oldest first.

    The search goes back from the end in growing steps, since the last offsets may be those of transaction
    markers, or of aborted records.

    Args:
        partition: the partition; its offset does not matter.
        most: number of records to return; fewer if the partition has fewer.
        before: only records before this offset; default: all.
    """
    first, end = offsets(reader, partition)
    end = end if before is None else min(end, before)
    back = OFFSETS_BACK * most
    while True:
        start = TopicPartition(partition.topic, partition.partition, max(first, end - back))
        records = deque(to_end(reader, start, end), maxlen=most)
        if len(records) == most or start.offset <= first:
            return list(records)
        back *= GROWTH


def partition_of(message: Message) -> PartitionId:
    """Return the partition of a message."""
    return message.topic() or "", message.partition() or 0
