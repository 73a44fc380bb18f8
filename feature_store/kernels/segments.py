"""Kernels that allocate segments of 4 to 512 events to cards: a buddy allocator (Knowlton 1965).

The events array is cut into chunks of MOST_EVENTS. A chunk is halved until a half is just large enough; two
free halves of the same whole are merged again. So the segment that a growing card leaves becomes part of a
larger one as soon as the other half of its whole is free. Free segments of a size form a doubly linked list
in their first records: `when` is the free marker, `money` the next free segment, `transaction` the previous
one plus 1 (0: none).
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
"""Free marker: `when` of a free segment's first record is _FREE - size class; of an event it is never
negative."""


@njit(cache=True)
def _link(events: Array, counters: Counters, segment: int, size_class: int) -> None:
    next_free = counters[FREE_SEGMENT + size_class]
    events[segment].when = _FREE - size_class
    events[segment].money = next_free
    events[segment].transaction = np.uint64(0)  # previous free segment + 1
    if next_free != EMPTY:
        events[next_free].transaction = np.uint64(segment + 1)
    counters[FREE_SEGMENT + size_class] = segment


@njit(cache=True)
def _unlink(events: Array, counters: Counters, segment: int, size_class: int) -> None:
    next_free = events[segment].money
    previous = np.int64(events[segment].transaction) - 1
    if previous == EMPTY:
        counters[FREE_SEGMENT + size_class] = next_free
    else:
        events[previous].money = next_free
    if next_free != EMPTY:
        events[next_free].transaction = np.uint64(previous + 1)


@njit(cache=True)
def take(events: Array, counters: Counters, size_class: int) -> int:
    """Allocate a segment of FIRST_CAPACITY << `size_class` events.

    Returns EMPTY if the array must grow by MOST_EVENTS first.
    """
    free_class = size_class
    while free_class < SIZE_CLASSES and counters[FREE_SEGMENT + free_class] == EMPTY:
        free_class += 1
    if free_class < SIZE_CLASSES:
        segment = counters[FREE_SEGMENT + free_class]
        _unlink(events, counters, segment, free_class)
    else:
        free_class = SIZE_CLASSES - 1
        segment = counters[EVENTS]
        if segment + MOST_EVENTS > events.size:
            return EMPTY
        counters[EVENTS] += MOST_EVENTS
    while free_class > size_class:
        free_class -= 1
        _link(events, counters, segment + (FIRST_CAPACITY << free_class), free_class)
    events[segment].when = 0
    return segment


@njit(cache=True)
def give_back(events: Array, counters: Counters, segment: int, size_class: int) -> None:
    """Free a segment, and merge it with its buddy as long as that is free, too."""
    while size_class < SIZE_CLASSES - 1:
        # the start of the buddy is always the start of a segment: of the buddy itself, or of a part of it
        buddy = segment ^ (FIRST_CAPACITY << size_class)
        if events[buddy].when != _FREE - size_class:
            break
        _unlink(events, counters, buddy, size_class)
        segment = min(segment, buddy)
        size_class += 1
    _link(events, counters, segment, size_class)
