"""Counts of card-hours and cards equal those from sets that keep every alert."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from streaming_job.decide.trial_units import TrialUnits

pytestmark = pytest.mark.unit

HOUR = 3_600_000
SEEN = st.tuples(
    st.integers(0, 1),
    st.integers(1, 2**64 - 1) | st.integers(1, 3),
    st.sampled_from([0, 1_000, HOUR // 2, HOUR, 5 * HOUR]),
    st.integers(1, 7),
)
"""(partition, card, ms since the partition's previous alert, bits: champion and two challengers alert)."""


def naive(seen: list[tuple[int, int, int, int]]) -> list[tuple[Counter[str], Counter[str]]]:
    """For each challenger: counts of all card-hours and of all cards, by which of the two models alerted."""
    out = []
    for number in (1, 2):
        kinds = []
        for with_hour in (True, False):
            clock = Counter[int]()
            mine, theirs = set(), set()
            for partition, card, wait, flags in seen:
                clock[partition] += wait
                unit = (card, clock[partition] // HOUR) if with_hour else (card,)
                if flags & 1:
                    mine.add((partition, *unit))
                if flags >> number & 1:
                    theirs.add((partition, *unit))
            expected = {
                "both": len(mine & theirs), "only_champion": len(mine - theirs),
                "only_challenger": len(theirs - mine),
            }  # fmt: skip
            kinds.append(Counter(expected))
        out.append((kinds[0], kinds[1]))
    return out


@examples(80, thorough=5_000)
@given(st.lists(SEEN, max_size=60), st.sets(st.integers(0, 59)))
def test_units_are_those_of_sets_and_survive_as_bytes(
    seen: list[tuple[int, int, int, int]], saved: set[int]
) -> None:
    units = TrialUnits()
    changes = [(Counter[str](), Counter[str]()) for _ in range(2)]
    clock = Counter[int]()
    for number, (partition, card, wait, flags) in enumerate(seen):
        clock[partition] += wait
        mine = units.of(partition, "r")
        assert mine is not None
        mine.add((card, 0), clock[partition], flags, changes)
        if number in saved:
            units = TrialUnits.decode(units.encode())
    assert [(+hours, +cards) for hours, cards in changes] == [(+h, +c) for h, c in naive(seen)]
    for partition, kept in units._partitions.items():
        assert all(unit[2] >= clock[partition] // HOUR - 1 for unit in kept.hours)


def test_alerts_of_the_hour_before_the_newest_count_and_older_ones_only_for_their_cards() -> None:
    units = TrialUnits()
    changes = [(Counter[str](), Counter[str]())]
    for card, hour, flags in ((1, 4, 1), (2, 5, 1), (1, 4, 2), (3, 3, 1)):
        mine = units.of(0, "r")
        assert mine is not None
        mine.add((card, 0), hour * HOUR, flags, changes)
    ((hours, cards),) = changes
    assert +hours == {"both": 1, "only_champion": 1}
    assert +cards == {"both": 1, "only_champion": 2}


def test_units_of_a_former_trial_are_dropped_only_in_its_partition() -> None:
    units = TrialUnits()
    for partition in (0, 1):
        mine = units.of(partition, "r1")
        assert mine is not None
        mine.add((1, 2), HOUR, 1, [])
    assert units.of(0, "r2") is not None
    assert units._partitions[0].cards == {}
    assert units._partitions[1].cards == {(1, 2): 1}
    assert units.of(1, None) is None
    assert units.of(0, None) is None
    assert not units
