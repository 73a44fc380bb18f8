"""What a look into librdkafka's queue is taken for."""

import numpy as np
import pytest

from streaming_job.source import librdkafka
from streaming_job.log.librdkafka import END_OF_PARTITION, ERROR, KEY_SIZE, OFFSET, SIZE, WORDS

pytestmark = pytest.mark.unit

BROKEN = -1


def measured(*messages: tuple[int, int], end: int = 100) -> tuple[int, ...]:
    """Messages are (offset, error); each value has 10 bytes, each key 3."""
    memory = np.zeros((len(messages), WORDS), dtype=np.int64)
    for row, (offset, error) in zip(memory, messages, strict=True):
        row[[OFFSET, SIZE, KEY_SIZE]] = offset, 10, 3
        # an int of four bytes, beside which anything may stand
        row[ERROR] = (0x7F << 32) | (error & 0xFFFFFFFF)
    addresses = np.array([row.ctypes.data for row in memory], dtype=np.int64)
    return tuple(map(int, librdkafka._measure(addresses, len(messages), end)))


def test_records_count_up_to_the_end_of_the_range() -> None:
    assert measured((7, 0), (8, 0)) == (2, 20, 6, 9, -1)
    assert measured((7, 0), (100, 0), (101, 0)) == (1, 10, 3, 101, -1)
    assert measured() == (0, 0, 0, -1, -1)


def test_the_end_of_a_partition_tells_of_marks_behind_its_last_record() -> None:
    assert measured((7, 0), (12, END_OF_PARTITION)) == (1, 10, 3, 12, -1)


def test_nothing_counts_that_stands_behind_an_error() -> None:
    assert measured((7, 0), (8, BROKEN), (20, 0)) == (1, 10, 3, 8, 1)
    assert measured((8, BROKEN)) == (0, 0, 0, -1, 0)
