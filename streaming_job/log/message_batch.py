"""A batch of messages of several partitions, copied from librdkafka's queue to Arrow's layout.

1. `read`: librdkafka returns pointers to messages.
2. `measure`: counts the records by partition, moves the positions, and drops messages that are no records,
   are beyond a limit, or do not fit into the batch.
3. `take_records`: copies each topic's records, ordered by partition, to arrays, and destroys the messages.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_job.log import header_kernels
from streaming_job.log.ffi import consume_batch
from streaming_job.log.message_kernels import (
    FAILED,
    MOST_BYTES,
    PARTITION_STATE,
    UNUSED,
    copy,
    destroy_unused,
    measure,
)
from streaming_job.log.records import Records

_BINARY = pa.binary()


def _binary(
    ends: NDArray[np.int32], data: NDArray[np.uint8], present: NDArray[np.bool_], nulls: int
) -> pa.BinaryArray:
    valid = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BINARY, present.size, buffers, null_count=nulls)


def as_text(names: pa.BinaryArray) -> pa.StringArray:
    """Return names of headers as text: it should be UTF-8, which brokers do not check.

    Bytes that are not become U+FFFD, as in Java's clients.
    """
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


class MessageBatch:
    """Messages read from a queue, held until their records are returned together."""

    def __init__(
        self,
        topics: Sequence[str],
        states: NDArray[np.void],
        by_broker: Collection[str] = (),
        *,
        with_headers: bool = False,
    ) -> None:
        """Begin empty.

        Args:
            topics: names, ascending.
            states: the partitions (PARTITION_STATE), whose positions and flags are updated; shape (p,).
            by_broker: topics whose records must have timestamps set by the broker.
            with_headers: whether records have their headers, which the job does not need.
        """
        self._with_headers = with_headers
        self._topics, self._states, self._by_broker = topics, states, frozenset(by_broker)
        self.foreign: tuple[str, int, int] | None = None
        """Topic, partition and offset of the first record seen whose timestamp the broker has not set."""
        self._totals = np.zeros((len(topics), 3), dtype=np.int64)
        self._begin()
        self._make_room(0)

    def _begin(self) -> None:
        self.count = 0
        """Number of messages."""
        self.record_count = 0
        """Number of messages that are records to be returned."""
        self.size = 0
        """Bytes of the records' keys and values."""
        self._measured = 0

    def _make_room(self, most: int) -> None:
        self._messages = np.empty(most, dtype=np.int64)
        self._owners = np.empty(most, dtype=np.int32)
        self._room, self._address = most, self._messages.ctypes.data

    def reserve(self, most: int) -> None:
        """Reserve room for `most` messages; the batch must be empty."""
        if most > self._room:
            self._make_room(most)

    def read(self, queue: int, most: int, wait_ms: int) -> int:
        """Add messages that arrive within a time; return their number.

        Args:
            queue: handle of the queue.
            most: maximum number, also limited by the reserved room.
            wait_ms: time to wait for that number.
        """
        most = min(most, self._room - self.count)
        read: int = consume_batch(queue, wait_ms, self._address + 8 * self.count, most)
        if read > 0:
            self.count += read
        return max(read, 0)

    def measure(self) -> bool:
        """Measure messages read since the last call; return whether one is an error or cuts its partition.

        A partition is cut by an error, or where a record is left out: one beyond the limit, or one for which
        there is no room. It returns no more records until it is started again.
        """
        records, size, is_troubled = measure(
            self._states, self._messages, self._measured, self.count, self._owners, self._totals, self.size,
            MOST_BYTES,
        )  # fmt: skip
        self._measured = self.count
        self.record_count += records
        self.size += size
        return bool(is_troubled)

    def failures(self) -> list[int]:
        """Return the addresses of new error messages; valid until `take_records`."""
        failed = np.flatnonzero(self._owners[: self.count] == FAILED)
        self._owners[failed] = UNUSED
        addresses: list[int] = self._messages[failed].tolist()
        return addresses

    def take_records(self) -> list[Records]:
        """Return the records by topic, ordered by partition and offset, and empty the batch."""
        records = []
        if self.record_count:
            for topic, (n, key_bytes, value_bytes) in enumerate(self._totals.tolist()):
                if n:
                    records.append(self._records(topic, n, key_bytes, value_bytes))
        destroy_unused(self._states, self._messages, self.count, self._owners, self._totals)
        self._begin()
        return records

    def _records(self, topic: int, n: int, key_bytes: int, value_bytes: int) -> Records:
        partitions = np.empty(n, dtype=np.int32)
        offsets, times = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        clock = np.zeros(1, dtype=np.int32)
        keys, key_ends = np.empty(key_bytes, dtype=np.uint8), np.empty(n + 1, dtype=np.int32)
        values, ends = np.empty(value_bytes, dtype=np.uint8), np.empty(n + 1, dtype=np.int32)
        keyed, present = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
        headers = self._headers(topic, n) if self._with_headers else None
        null_keys, null_values, foreign = copy(
            self._states, topic, self._messages, self.count, self._owners,
            partitions, offsets, times, clock, keys, key_ends, keyed, values, ends, present,
        )  # fmt: skip
        name = self._topics[topic]
        if foreign >= 0 and name in self._by_broker and self.foreign is None:
            self.foreign = name, int(partitions[foreign]), int(offsets[foreign])
        return Records(
            name,
            partitions,
            offsets,
            times,
            _binary(key_ends, keys, keyed, null_keys),
            _binary(ends, values, present, null_values),
            headers,
        )

    def _headers(self, topic: int, n: int) -> pa.ListArray:
        """Return the headers of a topic's n records; their messages must not be destroyed yet."""
        located, ends = np.empty(n, dtype=np.int64), np.empty(n + 1, dtype=np.int32)
        header_kernels.locate(self._states, topic, self._messages, self.count, self._owners, located)
        total, name_bytes, value_bytes = header_kernels.measure(located, ends)
        names, name_ends = np.empty(name_bytes, dtype=np.uint8), np.empty(total + 1, dtype=np.int32)
        values, value_ends = np.empty(value_bytes, dtype=np.uint8), np.empty(total + 1, dtype=np.int32)
        present = np.empty(total, dtype=np.bool_)
        nulls = header_kernels.copy(located, names, name_ends, values, value_ends, present)
        keys = as_text(_binary(name_ends, names, np.ones(total, dtype=np.bool_), 0))
        pairs = pa.StructArray.from_arrays(
            [keys, _binary(value_ends, values, present, nulls)],
            fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())],
        )
        return pa.ListArray.from_arrays(pa.array(ends), pairs)


def load_kernels() -> None:
    """Load the compiled kernels by a call without messages."""
    batch = MessageBatch(("",), np.zeros(1, dtype=PARTITION_STATE))
    batch.measure()
    batch._records(0, 0, 0, 0)
    batch.take_records()
