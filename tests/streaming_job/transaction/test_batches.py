"""Record batches: another implementation reads them, and their sequence numbers follow one another."""

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from streaming_job.transaction import batches as module
from streaming_job.transaction.batches import Batch, Headers, Record, batches, partition_of
from streaming_job.transaction.requests import Identity

pytestmark = pytest.mark.unit

compress = zstandard.ZstdCompressor().compress
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=200)), max_size=4)
RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=200), st.binary(max_size=400), HEADERS), min_size=1, max_size=80
)


@given(records=RECORDS, sequence=st.integers(0, 2**31 - 100), epoch=st.integers(0, 2**15 - 1))
def test_another_implementation_reads_what_was_encoded(
    records: list[tuple[bytes | None, bytes, list[tuple[str, bytes]]]], sequence: int, epoch: int
) -> None:
    given = [Record(key, value, Headers.of(headers)) for key, value, headers in records]
    encoded = Batch(given, sequence).encode(1_750_000_000_123, Identity("id", 7, epoch), compress)
    batch = MemoryRecords(encoded).next_batch()
    assert batch.validate_crc()
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, epoch, sequence)
    read = list(batch)
    assert [(record.key, record.value, record.headers) for record in read] == records
    assert [record.offset for record in read] == list(range(len(records)))
    assert {record.timestamp for record in read} == {1_750_000_000_123}


@given(sizes=st.lists(st.integers(0, 50), max_size=60), sequence=st.integers(0, 1000))
def test_batches_hold_all_records_in_order_and_no_more_bytes_than_allowed(
    sizes: list[int], sequence: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_BYTES", 40)
        records = [Record(None, b"x" * size, Headers.of([])) for size in sizes]
        made = list(batches(records, sequence))
    assert [record for batch in made for record in batch.records] == records
    for batch in made:
        assert batch.sequence == sequence
        sequence += len(batch.records)
        assert len(batch.records) == 1 or sum(record.size for record in batch.records) <= 40


def test_sequence_numbers_begin_again_after_the_greatest() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_BYTES", 1)
        made = list(batches([Record(None, b"xx", Headers.of([]))] * 3, 2**31 - 2))
    assert [batch.sequence for batch in made] == [2**31 - 2, 2**31 - 1, 0]


def test_records_without_a_key_are_spread_by_their_value() -> None:
    partitions = {partition_of(Record(None, b"%d" % number, Headers.of([])), 4) for number in range(50)}
    assert partitions == {0, 1, 2, 3}
