"""Messages of several partitions, copied out of librdkafka's queue into Arrow's layout.

1. `read`: librdkafka gives pointers to messages.
2. `measure`: counts what is to be handed out, by partition, moves the positions, and leaves out what is no
   record or lies beyond a limit.
3. `hand_out`: copies each topic's records to the rows of their partitions, and gives the messages back.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_job.log.ffi import consume_batch
from streaming_job.log.message_kernels import (
    FAILED,
    MOST_BYTES,
    PARTITION_STATE,
    UNUSED,
    copy,
    give_back_unused,
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


class MessageBatch:
    """What is taken from a queue until it is handed out together."""

    def __init__(self, topics: Sequence[str], states: NDArray[np.void]) -> None:
        """Begin empty.

        Args:
            topics: names, ascending.
            states: the partitions (PARTITION_STATE), whose position and marks move; shape (p,).
        """
        self._topics, self._states = topics, states
        self._totals = np.zeros((len(topics), 3), dtype=np.int64)
        self._begin()
        self._make_room(0)

    def _begin(self) -> None:
        self.count = 0
        """Messages."""
        self.record_count = 0
        """Those that are to be handed out."""
        self.size = 0
        """Bytes of their keys and values."""
        self._measured = 0

    def _make_room(self, most: int) -> None:
        self._messages = np.empty(most, dtype=np.int64)
        self._owners = np.empty(most, dtype=np.int32)
        self._room, self._address = most, self._messages.ctypes.data

    def reserve(self, most: int) -> None:
        """Have room for so many messages; while the batch is empty."""
        if most > self._room:
            self._make_room(most)

    def read(self, queue: int, most: int, wait_ms: int) -> int:
        """Add up to `most` messages, all that come within the time; how many came.

        Args:
            queue: handle of the queue.
            most: at most so many, and no more than there is room for.
            wait_ms: for as many.
        """
        most = min(most, self._room - self.count)
        found: int = consume_batch(queue, wait_ms, self._address + 8 * self.count, most)
        if found > 0:
            self.count += found
        return max(found, 0)

    def measure(self) -> bool:
        """Take in what was read since the last call; whether an error or a cut was met."""
        records, size, is_troubled = measure(
            self._states, self._messages, self._measured, self.count, self._owners, self._totals, self.size,
            MOST_BYTES,
        )  # fmt: skip
        self._measured = self.count
        self.record_count += records
        self.size += size
        return bool(is_troubled)

    def failures(self) -> list[int]:
        """Addresses of new error messages; valid until the batch is handed out."""
        failed = np.flatnonzero(self._owners[: self.count] == FAILED)
        self._owners[failed] = UNUSED
        found: list[int] = self._messages[failed].tolist()
        return found

    def hand_out(self) -> list[Records]:
        """The records, by topic, and within it by partition and offset; the batch is empty then."""
        found = []
        if self.record_count:
            for topic, (n, key_bytes, value_bytes) in enumerate(self._totals.tolist()):
                if n:
                    found.append(self._records(topic, n, key_bytes, value_bytes))
        give_back_unused(self._states, self._messages, self.count, self._owners, self._totals)
        self._begin()
        return found

    def _records(self, topic: int, n: int, key_bytes: int, value_bytes: int) -> Records:
        partitions = np.empty(n, dtype=np.int32)
        offsets, times = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        keys, key_ends = np.empty(key_bytes, dtype=np.uint8), np.empty(n + 1, dtype=np.int32)
        values, ends = np.empty(value_bytes, dtype=np.uint8), np.empty(n + 1, dtype=np.int32)
        keyed, present = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
        null_keys, null_values = copy(
            self._states, topic, self._messages, self.count, self._owners,
            partitions, offsets, times, keys, key_ends, keyed, values, ends, present,
        )  # fmt: skip
        return Records(
            self._topics[topic],
            partitions,
            offsets,
            times,
            _binary(key_ends, keys, keyed, null_keys),
            _binary(ends, values, present, null_values),
        )


def load_kernels() -> None:
    """Have the kernels loaded, without anything to do."""
    batch = MessageBatch(("",), np.zeros(1, dtype=PARTITION_STATE))
    batch.measure()
    batch._records(0, 0, 0, 0)
    batch.hand_out()
