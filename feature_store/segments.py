"""Kernels that give cards room for their events: segments of 4 to 512 events, by the buddy system.

The events array is cut into chunks of MOST_EVENTS; a chunk is halved until a half is just large enough, and
two free halves of the same whole become that whole again (Knowlton 1965). So what a growing card leaves
behind is soon part of what the next one grows into. A free segment's first record links it to others of its
size.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.layout import EMPTY, EVENTS, FIRST_CAPACITY, FREE_SEGMENT, MOST_EVENTS, SIZE_CLASSES

Array = Any
"""A structured array, or one record of it: numba knows the fields, mypy does not."""
Counters = NDArray[np.int64]

_FREE = -2
"""`when` of a free segment's first record, less its size class; that of an event is never negative."""


@njit(cache=True)
def _link(events: Array, counters: Counters, segment: int, size_class: int) -> None:
    next_free = counters[FREE_SEGMENT + size_class]
    events[segment].when = _FREE - size_class
    events[segment].amount = next_free
    events[segment].transaction = np.uint64(0)  # the one before it, and one more
    if next_free != EMPTY:
        events[next_free].transaction = np.uint64(segment + 1)
    counters[FREE_SEGMENT + size_class] = segment


@njit(cache=True)
def _unlink(events: Array, counters: Counters, segment: int, size_class: int) -> None:
    next_free = events[segment].amount
    before = np.int64(events[segment].transaction) - 1
    if before == EMPTY:
        counters[FREE_SEGMENT + size_class] = next_free
    else:
        events[before].amount = next_free
    if next_free != EMPTY:
        events[next_free].transaction = np.uint64(before + 1)


@njit(cache=True)
def take(events: Array, counters: Counters, size_class: int) -> int:
    """A segment of FIRST_CAPACITY << `size_class` events; EMPTY if the array must grow by MOST_EVENTS."""
    found = size_class
    while found < SIZE_CLASSES and counters[FREE_SEGMENT + found] == EMPTY:
        found += 1
    if found < SIZE_CLASSES:
        segment = counters[FREE_SEGMENT + found]
        _unlink(events, counters, segment, found)
    else:
        found = SIZE_CLASSES - 1
        segment = counters[EVENTS]
        if segment + MOST_EVENTS > events.size:
            return EMPTY
        counters[EVENTS] += MOST_EVENTS
    while found > size_class:
        found -= 1
        _link(events, counters, segment + (FIRST_CAPACITY << found), found)
    events[segment].when = 0
    return segment


@njit(cache=True)
def give_back(events: Array, counters: Counters, segment: int, size_class: int) -> None:
    """Free a segment; with its other half, if that is free too, it becomes the larger one that they are."""
    while size_class < SIZE_CLASSES - 1:
        # the start of a half is always the start of a segment: of that half, or of a part of it
        other = segment ^ (FIRST_CAPACITY << size_class)
        if events[other].when != _FREE - size_class:
            break
        _unlink(events, counters, other, size_class)
        segment = min(segment, other)
        size_class += 1
    _link(events, counters, segment, size_class)
