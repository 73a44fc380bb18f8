"""Measuring of the messages in librdkafka's queue."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_job.log.ffi import END_OF_PARTITION, ERROR, KEY_SIZE, OFFSET, PARTITION, SIZE, TOPIC, WORDS
from streaming_job.log.message_batch import as_text
from streaming_job.log.message_kernels import FAILED, MOST_BYTES, NO_LIMIT, PARTITION_STATE, UNUSED, measure

pytestmark = pytest.mark.unit

BROKEN = -1
FIRST, SECOND = 1000, 2000
"""Handles of topics."""
GARBAGE = 0x7F << 32
"""Error and partition are ints of four bytes; the bytes beside them may have any value."""


class Queue:
    """Three partitions: two of the first topic, one of the second, each at offset 5."""

    def __init__(self, limit: int = NO_LIMIT, most: int = MOST_BYTES) -> None:
        self.most = most
        self.states = np.zeros(3, dtype=PARTITION_STATE)
        self.states["topic"], self.states["partition"] = (FIRST, FIRST, SECOND), (0, 3, 0)
        self.states["topic_number"] = (0, 0, 1)
        self.states["position"], self.states["limit"] = 5, limit
        self.totals = np.zeros((2, 3), dtype=np.int64)
        self.owners: list[int] = []

    def measure(self, *messages: tuple[int, int, int, int], taken: int = 0) -> tuple[int, int, bool]:
        """Measure messages (topic, partition, offset, error), with values of 10 bytes and keys of 3."""
        memory = np.zeros((len(messages), WORDS), dtype=np.int64)
        for row, (topic, partition, offset, error) in zip(memory, messages, strict=True):
            row[[TOPIC, OFFSET, SIZE, KEY_SIZE]] = topic, offset, 10, 3
            row[PARTITION] = GARBAGE | partition
            row[ERROR] = GARBAGE | (error & 0xFFFFFFFF)
        addresses = np.array([row.ctypes.data for row in memory], dtype=np.int64)
        owners = np.empty(len(messages), dtype=np.int32)
        result = measure(self.states, addresses, 0, len(messages), owners, self.totals, taken, self.most)
        self.owners = owners.tolist()
        return result

    @property
    def positions(self) -> list[int]:
        return self.states["position"].tolist()


def test_records_are_counted_by_partition_and_topic() -> None:
    queue = Queue()
    messages = ((FIRST, 3, 5, 0), (SECOND, 0, 5, 0), (FIRST, 0, 7, 0), (FIRST, 3, 6, 0))
    assert queue.measure(*messages) == (4, 4 * 13, False)
    assert queue.owners == [1, 2, 0, 1]
    assert queue.positions == [8, 7, 6]
    assert queue.states["rows"].tolist() == [1, 2, 1]
    assert queue.states["key_bytes"].tolist() == [3, 6, 3]
    assert queue.totals.tolist() == [[3, 9, 30], [1, 3, 10]]
    assert queue.measure() == (0, 0, False)


def test_the_end_of_a_partition_shows_markers_after_its_last_record() -> None:
    queue = Queue()
    assert queue.measure((FIRST, 0, 7, 0), (FIRST, 0, 12, END_OF_PARTITION)) == (1, 13, False)
    assert queue.positions == [12, 5, 5]


def test_only_other_partitions_are_read_past_an_error() -> None:
    queue = Queue()
    messages = (
        (FIRST, 0, 7, 0),
        (FIRST, 0, 8, BROKEN),
        (FIRST, 0, 20, 0),
        (FIRST, 3, 9, 0),
        (FIRST, 0, 30, END_OF_PARTITION),
    )
    assert queue.measure(*messages) == (2, 26, True)
    assert queue.owners == [0, FAILED, UNUSED, 1, UNUSED]
    assert queue.positions == [8, 10, 5]
    assert queue.states["is_cut"].tolist() == [True, False, False]
    # the next call does not read that partition, either
    assert queue.measure((FIRST, 0, 21, 0)) == (0, 0, False)


def test_an_error_without_a_partition_is_reported_and_stops_none() -> None:
    queue = Queue()
    assert queue.measure((0, 0, 0, BROKEN), (FIRST, 0, 5, 0)) == (1, 13, True)
    assert queue.owners == [FAILED, 0]
    assert not queue.states["is_cut"].any()


def test_records_before_the_position_are_not_returned_again() -> None:
    queue = Queue()
    assert queue.measure((FIRST, 0, 4, 0), (FIRST, 0, 5, 0)) == (1, 13, False)
    assert queue.owners == [UNUSED, 0]


@pytest.mark.parametrize("error", [0, END_OF_PARTITION])
def test_neither_records_nor_positions_pass_a_limit(error: int) -> None:
    queue = Queue(limit=10)
    assert queue.measure((FIRST, 0, 8, 0), (FIRST, 0, 13, error), (FIRST, 0, 14, 0)) == (1, 13, True)
    assert queue.positions[0] == 10
    assert queue.states["is_cut"].tolist() == [True, False, False]


def test_records_beyond_the_limit_of_bytes_are_left_for_the_next_call() -> None:
    queue = Queue(most=30)
    messages = ((FIRST, 0, 5, 0), (SECOND, 0, 5, 0), (FIRST, 0, 6, 0), (SECOND, 0, 7, END_OF_PARTITION))
    assert queue.measure(*messages, (FIRST, 0, 7, 0)) == (2, 26, True)
    assert queue.owners == [0, 2, UNUSED, UNUSED, UNUSED]
    assert queue.positions == [6, 5, 7]
    assert queue.states["is_cut"].tolist() == [True, False, False]


def test_a_single_record_of_any_size_is_read() -> None:
    queue = Queue(most=5)
    assert queue.measure((FIRST, 0, 5, 0)) == (1, 13, False)
    assert queue.measure((FIRST, 0, 6, 0), (SECOND, 0, 5, 0), taken=13) == (0, 0, True)
    assert queue.positions == [6, 5, 5]


def test_a_partition_that_ends_at_its_limit_is_not_cut() -> None:
    queue = Queue(limit=10)
    assert queue.measure((FIRST, 0, 9, 0), (FIRST, 0, 10, END_OF_PARTITION)) == (1, 13, False)
    assert queue.positions[0] == 10


def test_names_of_headers_that_are_not_utf_8_are_text_nevertheless() -> None:
    names = [b"commit_id", "Grund_\u00e4".encode(), "Grund_\u00e4".encode("latin-1"), b""]
    text = as_text(pa.array(names, pa.binary()))
    assert text.to_pylist() == ["commit_id", "Grund_\u00e4", "Grund_\ufffd", ""]
    assert as_text(pa.array(names[:2], pa.binary())).to_pylist() == ["commit_id", "Grund_\u00e4"]
