"""The state partition in which Spark places a key group."""

import pytest

from streaming_job.group.placement import grouping_values, spark_hash

pytestmark = pytest.mark.unit


# SELECT hash(0), hash(1), ... in Spark 4.2.0
@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 933211791), (1, -559580957), (42, 29417773), (-1, -1604776387), (2147483647, 133916647)],
)
def test_the_hash_equals_sparks(value, expected):
    assert spark_hash(value) == expected


@pytest.mark.parametrize("groups", [1, 2, 3, 7, 12, 48, 200, 1000])
def test_every_group_has_a_partition_of_its_own(groups):
    values = grouping_values(groups)
    assert [spark_hash(value) % groups for value in values] == list(range(groups))
    assert all(0 <= value < 1 << 31 for value in values)
