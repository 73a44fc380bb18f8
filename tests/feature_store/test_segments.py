"""The allocator of segments: segments never overlap, and free ones are merged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.kernels.segments import give_back, take
from feature_store.layout import (
    CARD,
    EMPTY,
    EVENT,
    EVENTS,
    FIRST_CAPACITY,
    FREE_SEGMENT,
    MOST_EVENTS,
    SIZE_CLASSES,
)
from feature_store.state.arena import FIRST_SIZES, FileArena, MemoryArena
from feature_store.state.group_state import GroupState
from loadtests.bench.feature_load import FeatureLoad

pytestmark = pytest.mark.unit


@examples(40)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, SIZE_CLASSES - 1), st.integers(0, 1000)), max_size=80)
)
def test_segments_never_overlap_and_merge_when_all_are_free(steps):
    """Each step takes a segment or frees one; afterwards no event may lie in two taken segments."""
    arena = MemoryArena()
    events, counters = arena.arrays["events"], arena.arrays["counters"]
    held: list[tuple[int, int]] = []
    for is_take, size_class, which in steps:
        if is_take or not held:
            segment = take(events, counters, size_class)
            if segment == EMPTY:
                continue
            assert segment % (FIRST_CAPACITY << size_class) == 0
            events["when"][segment : segment + (FIRST_CAPACITY << size_class)] = 1  # as in stored events
            held.append((segment, size_class))
        else:
            give_back(events, counters, *held.pop(which % len(held)))
        owner = np.zeros(events.size, dtype=int)
        for segment, size in held:
            owner[segment : segment + (FIRST_CAPACITY << size)] += 1
        assert owner.max(initial=0) <= 1
    for segment, size_class in held:
        give_back(events, counters, segment, size_class)
    assert (counters[FREE_SEGMENT : FREE_SEGMENT + SIZE_CLASSES - 1] == EMPTY).all()
    whole, free = 0, counters[FREE_SEGMENT + SIZE_CLASSES - 1]
    while free != EMPTY:
        whole, free = whole + 1, events["money"][free]
    assert whole * MOST_EVENTS == counters[EVENTS]


def test_a_full_array_is_not_written_beyond_its_end():
    arena = MemoryArena()
    events, counters = arena.arrays["events"], arena.arrays["counters"]
    for _ in range(FIRST_SIZES["events"] // MOST_EVENTS):
        assert take(events, counters, SIZE_CLASSES - 1) != EMPTY
    assert take(events, counters, 0) == EMPTY
    assert counters[EVENTS] == events.size


def test_working_copy_takes_less_than_twice_its_records(tmp_path):
    """Cards that grow together from zero to eighty events each, as in a new job."""
    cards = 2_000
    state = GroupState(FileArena(tmp_path))
    FeatureLoad(cards).warm(state, 40, 4_000)
    records = cards * CARD.itemsize + state.event_count * EVENT.itemsize
    assert records < state.arena.nbytes < 2 * records
