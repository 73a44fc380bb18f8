"""The partition of a card, as Kafka's producers choose it."""

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_job.log.partitioner import KeyGroups, Partitioner, crc32, murmur2

pytestmark = pytest.mark.unit


def java_murmur2(data: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, line by line, on unsigned numbers."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - 3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k ^= k >> 24
        h = h * m & mask ^ (k * m & mask)
    rest = data[len(data) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ h >> 15


def flat(data: bytes) -> tuple[np.ndarray, int, int]:
    return np.frombuffer(b"before" + data + b"after", dtype=np.uint8), 6, 6 + len(data)


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_has_the_values_of_kafkas_own_test(key: bytes, signed: int) -> None:
    assert java_murmur2(key) == signed & 0xFFFFFFFF
    assert murmur2(*flat(key)) == signed & 0x7FFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_hashes_of_random_bytes_equal_the_references(data: bytes) -> None:
    assert murmur2(*flat(data)) == java_murmur2(data) & 0x7FFFFFFF
    assert crc32(*flat(data)) == zlib.crc32(data)


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.text(max_size=20)), st.integers(0, 3), st.sampled_from(Partitioner), st.integers(1, 48))
def test_a_column_of_keys_has_the_partitions_of_its_keys(
    cards: list[str], skipped: int, partitioner: Partitioner, partitions: int
) -> None:
    groups = KeyGroups(partitioner, partitions, groups=max(1, partitions // 2))
    expected = [groups.partition_of(card) for card in cards]
    for column in (pa.array(cards, pa.string()), pa.array([card.encode() for card in cards], pa.binary())):
        # a slice of an Arrow array has an offset into its buffers
        result = groups.partitions_of(column.slice(skipped))
        assert result.dtype == np.int32
        assert result.tolist() == expected[skipped:]
        places = groups.places_of(column.slice(skipped))
        assert places["home"].tolist() == expected[skipped:]
        for other in Partitioner:  # the hashes give the partition in any other topic, too
            elsewhere = KeyGroups(other, partitions + 1, 1)
            assert (
                elsewhere.homes_of(places).tolist() == elsewhere.partitions_of(column.slice(skipped)).tolist()
            )
    for card, partition in zip(cards, expected, strict=True):
        assert partition in groups.own(groups.group_of(card))


def test_a_key_that_is_null_counts_as_empty() -> None:
    groups = KeyGroups(Partitioner.MURMUR2, 7, 2)
    keys = pa.array([b"card-1", None, b"card-2"], pa.binary())
    assert groups.partitions_of(keys).tolist() == [
        groups.partition_of(card) for card in ("card-1", "", "card-2")
    ]
    assert groups.partitions_of(pa.array([None, None], pa.binary())).tolist() == [groups.partition_of("")] * 2
    assert groups.partitions_of(pa.array([], pa.binary())).size == 0


def test_each_partition_belongs_to_one_group() -> None:
    groups = KeyGroups(Partitioner.CRC32, partitions=8, groups=3)
    assert [groups.own(group) for group in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]
