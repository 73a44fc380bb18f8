"""Counts by merchant and hour equal those of a dictionary, in whatever order they are added."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.merchants import hours
from feature_store.merchants.facts import added_up
from feature_store.merchants.hours import HOUR_COUNT, GrowingHours, Hours, SortedHours

pytestmark = pytest.mark.unit

COUNTS = st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(1, 5))
"""Merchant, hour, count; some merchants collide in the index, see `hashed`."""
BATCHES = st.lists(st.tuples(st.integers(0, 3), st.lists(COUNTS, max_size=40)), max_size=12)
"""Each batch: the number of hours by which the oldest hour moves on, and the counts to add."""


def hashed(merchant: int) -> int:
    """Hash of a merchant; the hashes of even merchants collide in the index."""
    return merchant if merchant % 2 else merchant << 30


def rows(counts: list[tuple[int, int, int]]) -> np.ndarray:
    return np.array([(hashed(merchant), hour, count) for merchant, hour, count in counts], dtype=HOUR_COUNT)


def found(table: Hours, oldest: int) -> dict[tuple[int, int], int]:
    """A table's counts from the hour `oldest` on; checks that each merchant's hours ascend strictly."""
    asked = np.array([hashed(merchant) for merchant in range(11)], dtype=np.uint64)
    held = {}
    for merchant, start, end in zip(
        asked.tolist(), *(part.tolist() for part in table.ranges(asked)), strict=True
    ):
        of_merchant = table.hour[start:end].tolist()
        assert of_merchant == sorted(set(of_merchant))
        for hour, count in zip(of_merchant, table.count[start:end].tolist(), strict=True):
            if hour >= oldest:
                held[merchant, hour] = count
    return held


@examples(150)
@given(BATCHES)
def test_growing_hours_hold_every_count_that_a_lookup_can_reach(batches):
    with pytest.MonkeyPatch.context() as patch:
        # few rows at first, so that segments grow, move, and lose their old hours
        patch.setattr(hours, "FIRST_MERCHANTS", 1)
        patch.setattr(hours, "MOVED_ROWS", 0)
        table, expected, oldest = GrowingHours(), Counter(), 0
        for step, counts in batches:
            oldest += step
            table.add(rows(counts), oldest)
            for merchant, hour, count in counts:
                if hour >= oldest:
                    expected[hashed(merchant), hour] += count
            assert found(table, oldest) == {at: n for at, n in expected.items() if at[1] >= oldest}


@examples(50)
@given(BATCHES)
def test_hours_before_a_time_are_returned_and_removed(batches):
    table, expected, until = GrowingHours(), Counter(), 0
    for step, counts in batches:
        table.add(rows(counts), 0)
        for merchant, hour, count in counts:
            expected[hashed(merchant), hour] += count
        until += step
        before = table.before(until)
        assert before.tolist() == sorted((*at, n) for at, n in expected.items() if at[1] < until)
        table.drop_before(until)
        expected = Counter({at: n for at, n in expected.items() if at[1] >= until})
        assert found(table, 0) == expected


@examples(50)
@given(st.lists(COUNTS, max_size=40))
def test_sorted_hours_hold_the_same(counts):
    growing = GrowingHours()
    growing.add(rows(counts), 0)
    assert found(SortedHours.of(added_up(rows(counts))), 0) == found(growing, 0)


def test_merchants_without_hours_that_a_lookup_reaches_are_forgotten():
    table = GrowingHours()
    for hour in range(200):  # each hour has a thousand merchants of its own, and merchant 0
        others = [(2 * number + 1, hour, 1) for number in range(1_000 * hour + 10, 1_000 * hour + 1_010)]
        table.add(rows([(0, hour, 1), *others]), hour - 5)
    assert found(table, 194) == {(0, hour): 1 for hour in range(194, 200)}
    assert table.nbytes < 3_000_000, "200,000 merchants take 14 MB"


def test_hours_that_no_lookup_reaches_make_room_for_new_ones():
    table = GrowingHours()
    for hour in range(100_000):
        table.add(rows([(1, hour, 1)]), hour - 700)
    start, end = (int(part[0]) for part in table.ranges(np.array([1], dtype=np.uint64)))
    assert 700 <= end - start <= 1_400
    assert table.nbytes < 200_000
