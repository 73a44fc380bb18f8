"""The follower of partitions: fetches them continuously from given offsets on, and returns new records."""

import math
import time
from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np
from confluent_kafka import KafkaError

from feature_store.errors import FraudError
from streaming_job.log.errors import PATIENCE_S, LogError, LogUnavailableError
from streaming_job.log.ffi import Client, error_of, partition_of
from streaming_job.log.message_batch import MessageBatch
from streaming_job.log.message_kernels import NO_LIMIT, PARTITION_STATE
from streaming_job.log.records import Offsets, PartitionId, Records

SLICE = 4096
"""Maximum number of messages requested from the queue at once. `take` exceeds its limit of bytes by fewer
records than this."""
FIRST_SIZE = 1024
"""Estimated bytes of a record, until records have been read."""
PAUSE_S = 0.1
"""Pause before a partition is fetched again after an error."""
GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
"""Errors of a partition that does not exist; it may be about to be added."""

TUNING = {
    "log_level": "2",  # errors are raised
    # a fetch returns with its first record, or empty after this time. Only an empty fetch reports the end of
    # the partition, and this report moves positions past transaction markers
    "fetch.wait.max.ms": "50",
    # limits of the queue that all partitions share; each record takes 400 bytes in addition to its size
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "1",
    # counts compressed bytes. A fetch is unpacked as a whole, to a hundred times its size if records are
    # mostly blanks; larger fetches are not faster
    "max.partition.fetch.bytes": str(256 << 10),
    "reconnect.backoff.max.ms": "1000",
}
"""The job's client settings; the operator's settings override them."""
GUARANTEES = {
    "isolation.level": "read_committed",
    # reports of partitions' ends move positions past transaction markers, which are not returned as records
    "enable.partition.eof": "true",
    # records that are gone are never skipped silently
    "auto.offset.reset": "error",
    "check.crcs": "true",
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}
"""Client settings that cannot be overridden: exactly-once depends on them."""


class PartitionFollower(Protocol):
    """A follower of partitions; see `LogFollower`."""

    @property
    def positions(self) -> Offsets:
        """Next offset of each partition."""

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        """Return the new records that are there; wait only for the first."""

    def limit(self, ends: Offsets | None) -> None:
        """Limit what `take` returns."""

    def trouble(self) -> str:
        """Return why nothing arrives; empty if there is no reason."""

    def close(self) -> None:
        """Stop fetching."""


class LogFollower:
    """A follower that fetches partitions continuously, into one queue; not thread-safe."""

    def __init__(
        self,
        client: Mapping[str, str],
        positions: Offsets,
        by_broker: Collection[str] = (),
        *,
        with_headers: bool = False,
    ) -> None:
        """Begin to fetch.

        Args:
            client: librdkafka settings, including bootstrap.servers.
            positions: the partitions to follow, and the offset at which each begins.
            by_broker: topics whose records must have timestamps set by the broker (LogAppendTime).
            with_headers: see `MessageBatch`.
        """
        self._client = Client({**TUNING, **client, **GUARANTEES})
        self._partitions: list[PartitionId] = sorted(positions)
        topics = sorted({topic for topic, _ in positions})
        self._states = np.zeros(len(positions), dtype=PARTITION_STATE)
        for state, (topic, partition) in zip(self._states, self._partitions, strict=True):
            state["topic"], state["topic_number"] = self._client.topic(topic), topics.index(topic)
            state["partition"], state["position"] = partition, positions[topic, partition]
        self._states["limit"] = NO_LIMIT
        self._batch = MessageBatch(topics, self._states, by_broker, with_headers=with_headers)
        self._record_size = FIRST_SIZE
        self._restarts: dict[int, float] = {}
        """Row of a partition that failed, or was cut by a full batch -> time at which it is fetched again."""
        self._failing_since: dict[int, float] = {}
        """Row of a partition -> time of the first error since a record or the partition's end was read."""
        self._lost: FraudError | None = None
        for row in range(len(self._partitions)):
            self._start(row)

    @property
    def positions(self) -> Offsets:
        """Next offset of each partition: after the records, transaction markers and aborted records read."""
        return dict(zip(self._partitions, self._states["position"].tolist(), strict=True))

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        """Return the new records that are there; wait only for the first.

        Args:
            most_bytes: limit of bytes of keys and values, exceeded by fewer than SLICE records.
            wait_s: how long to wait for the first record.

        Returns:
            One `Records` for each topic that has new records.

        Raises:
            LogError: records are gone, or a partition has not existed for PATIENCE_S. It is raised after all
                records read before have been returned. Or a record has another timestamp than the broker's
                (the first of each run of a partition is looked at); then none read with it is returned.
            LogUnavailableError: a partition cannot be read for PATIENCE_S for another reason.
        """
        if self._lost is not None:
            raise self._lost
        self._batch.reserve(most)
        self._client.listen()
        self._wait(most, most_bytes, wait_s)
        if self._batch.record_count:
            self._client.trouble = ""
        batches = self._batch.take_records()
        if self._batch.foreign is not None:
            topic, partition, offset = self._batch.foreign
            raise LogError(
                f"the record {topic}-{partition} at offset {offset} has its producer's timestamp "
                "(CreateTime), so its arrival is not certain; if that is intended, as in an archive, set "
                "FRAUD_ARRIVAL=create until the job has read past it; see docs/operations.md, Topics"
            )
        if self._lost is not None and not batches:
            raise self._lost
        return batches

    def limit(self, ends: Offsets | None) -> None:
        """Limit what `take` returns: no record at or beyond an end; no position moves beyond an end.

        Args:
            ends: end by partition; other partitions have no limit. None removes all limits.
        """
        for row, tp in enumerate(self._partitions):
            self._states[row]["limit"] = NO_LIMIT if ends is None else ends.get(tp, NO_LIMIT)
            # restart partitions that stopped at a limit; those in `_restarts` are restarted when they are due
            if self._states[row]["is_cut"] and row not in self._restarts:
                self._start(row)

    def trouble(self) -> str:
        """Return the client's last error since the last record; empty if there was none."""
        self._client.listen()
        return self._client.trouble

    def close(self) -> None:
        """Stop fetching, and free the memory."""
        self._client.close()

    def _wait(self, most: int, most_bytes: int, wait_s: float) -> None:
        """Wait for the first record, and read it with all others that have arrived by then."""
        batch, queue = self._batch, self._client.queue
        deadline = time.monotonic() + wait_s
        while True:
            due = min(deadline, self._restart()) if self._restarts else deadline
            # librdkafka waits until it has all requested messages: so request one, then more without waiting
            arrived = batch.read(queue, 1, _ms_until(due))
            if arrived:
                self._fill(most, most_bytes)
            if batch.record_count or self._lost is not None:
                return
            batch.take_records()  # messages in the batch, if any, are no records: destroy them
            if not arrived and time.monotonic() >= deadline:
                return

    def _fill(self, most: int, most_bytes: int) -> None:
        """Read the messages that have arrived, until the batch is full."""
        batch, queue = self._batch, self._client.queue
        while (room := most - batch.count) > 0 and (bytes_left := most_bytes - batch.size) > 0:
            requested = min(room, SLICE, max(1, bytes_left // self._record_size))
            arrived = batch.read(queue, requested, 0)
            self._measure()
            if arrived < requested:
                return
        self._measure()

    def _measure(self) -> None:
        is_troubled = self._batch.measure()
        if self._batch.record_count:
            self._record_size = max(1, self._batch.size // self._batch.record_count)
        if is_troubled:
            for message in self._batch.failures():
                self._fail(message)
            for row in np.flatnonzero(self._states["is_cut"]).tolist():
                self._client.stop(*self._partitions[row])
                if self._states[row]["position"] < self._states[row]["limit"]:
                    self._restarts.setdefault(row, 0.0)  # the batch was full: the next `take` continues

    def _fail(self, message: int) -> None:
        """Schedule a failed partition to be fetched again, or give it up."""
        error, tp = error_of(message), partition_of(message)
        self._client.trouble = error.str() if tp is None else f"{tp[0]}-{tp[1]}: {error.str()}"
        if tp not in self._partitions:
            return
        row, now = self._partitions.index(tp), time.monotonic()
        state = self._states[row]
        if state["is_heard"] or row not in self._failing_since:
            self._failing_since[row] = now
        state["is_cut"], state["is_heard"] = True, False
        self._restarts[row] = now + PAUSE_S
        where = f"{tp[0]}-{tp[1]} from offset {state['position']} on"
        if error.code() in GONE:
            self._lost = LogError(
                f"the records of {where} are gone ({error.str()}): retention has deleted them, or the topic "
                "was recreated; see docs/operations.md"
            )
        elif now - self._failing_since[row] > PATIENCE_S:
            kind = LogError if error.code() in MISSING else LogUnavailableError
            self._lost = kind(
                f"{where} cannot be read for {PATIENCE_S:.0f} s ({error.str()}); check the brokers, and "
                "whether the topic exists"
            )

    def _restart(self) -> float:
        """Restart the partitions that are due; return when the next one is due, infinity if none waits."""
        now = time.monotonic()
        for row in [row for row, due in self._restarts.items() if due <= now]:
            del self._restarts[row]
            self._start(row)
        return min(self._restarts.values(), default=math.inf)

    def _start(self, row: int) -> None:
        state = self._states[row]
        state["is_cut"] = False
        self._client.start(*self._partitions[row], int(state["position"]))


def _ms_until(deadline: float) -> int:
    return max(0, math.ceil((deadline - time.monotonic()) * 1000))
