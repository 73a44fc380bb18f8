"""How far a micro-batch reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_job.log.end_offsets import limited, require_no_loss
from streaming_job.log.errors import LogError

pytestmark = pytest.mark.unit

PARTITIONS = st.dictionaries(st.sampled_from("01234567"), st.integers(0, 10**12), min_size=1)


@given(PARTITIONS, PARTITIONS, st.integers(1, 10**6))
def test_each_partition_with_something_gets_its_share_and_at_least_one_record(
    start: dict[str, int], more: dict[str, int], most: int
) -> None:
    end = {part: start.get(part, 0) + count for part, count in more.items()}
    found = limited(start, end, most)
    given_out = {part: offset - start.get(part, 0) for part, offset in found.items()}
    assert set(found) == set(end)
    assert all(0 <= given_out[part] <= more[part] for part in more)
    assert all(given_out[part] > 0 for part in more if more[part])
    assert sum(given_out.values()) <= most + len(more)
    if sum(more.values()) <= most:
        assert found == end
    else:
        assert sum(given_out.values()) > most - len(more)


def test_a_backlog_is_worked_off_whole() -> None:
    start, end, batches = {"0": 5, "1": 0}, {"0": 1_000_005, "1": 3, "2": 10}, 0
    while start != end:
        start = limited(start, end, 1_000)
        batches += 1
    assert 1_000 <= batches <= 1_002


@pytest.mark.parametrize(("end", "words"), [({"0": 9}, "ends at 9"), ({"1": 20}, "is gone")])
def test_a_log_that_became_shorter_is_no_log_to_go_on_with(end: dict[str, int], words: str) -> None:
    with pytest.raises(LogError, match=f"transactions-0 was read up to offset 10 and {words}"):
        require_no_loss({"transactions": {"0": 10}}, {"transactions": end})


def test_a_log_that_grew_is() -> None:
    require_no_loss({"transactions": {"0": 10}}, {"transactions": {"0": 10, "1": 3}, "profiles": {"0": 1}})
