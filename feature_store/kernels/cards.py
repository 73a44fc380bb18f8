"""Kernels of the card index and of each card's event segment.

The index is an open-addressed hash table of card numbers. Events of a card lie in one segment (see
`segments`), sorted by event time (equal times in order of acceptance). When a segment is full, its events
that no window can reach any more are dropped, if there are enough of them; otherwise its events move to a
segment of twice the size. A card that needs more than MOST_EVENTS becomes hot: rings of buckets then count
its events (see `hot`), and a full segment of MOST_EVENTS drops its older half.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.kernels.segments import Array, Counters, give_back, take
from feature_store.layout import (
    CARDS,
    EMPTY,
    FIRST_CAPACITY,
    FREE_CARD,
    FREE_CARDS,
    LIVE_EVENTS,
    MOST_EVENTS,
    NO_PROFILE,
    SIZE_CLASSES,
    WHEN_SHIFT,
)

__all__ = ["Array", "Counters"]

ROOM, MORE_EVENTS, TOO_MANY = range(3)


@njit(cache=True, inline="always")
def find(index: NDArray[np.int32], cards: Array, lo: np.uint64, hi: np.uint64) -> np.int64:
    """Return the number of a card, or -1 - i where i is the free slot of the index for it."""
    mask = np.uint64(index.size - 1)
    at = lo & mask
    while True:
        card = index[at]
        if card == EMPTY:
            return np.int64(-1) - np.int64(at)
        if cards[card].lo == lo and cards[card].hi == hi:
            return np.int64(card)
        at = (at + np.uint64(1)) & mask


@njit(cache=True)
def add_card(
    index: NDArray[np.int32],
    cards: Array,
    counters: Counters,
    slot: int,
    lo: np.uint64,
    hi: np.uint64,
    place: Array,
) -> int:
    """Set up an empty card and enter it into a free slot of the index; the cards array must have room."""
    number = counters[FREE_CARD]
    if number != EMPTY:
        counters[FREE_CARD] = cards[number].segment
        counters[FREE_CARDS] -= 1
    else:
        number = counters[CARDS]
        counters[CARDS] += 1
    index[slot] = number
    counters[NO_PROFILE] += 1
    set_up(cards[number], lo, hi)
    put(cards[number], place)
    return number


@njit(cache=True)
def set_up(card: Array, lo: np.uint64, hi: np.uint64) -> None:
    """Initialise a record as a card without history, whose place is unknown (see `put`)."""
    card.lo = lo
    card.hi = hi
    card.segment = EMPTY
    card.profile = EMPTY
    card.alert_hours = EMPTY
    card.hot = EMPTY
    card.size_class = EMPTY
    card.partition = EMPTY
    card.events = 0
    card.alerts = 0
    forget(card)


@njit(cache=True, inline="always")
def put(card: Array, place: Array) -> None:
    """Set where a card's transactions are; `place` has the fields of PLACE."""
    card.partition = place.home
    card.murmur2 = place.murmur2
    card.crc32 = place.crc32


@njit(cache=True)
def adopt(cards: Array, added: Array) -> None:
    """Set up the cards that a delta added, except those whose records are in use (`lo` or `hi` is not 0)."""
    for card in added:
        if cards[card.number].lo == 0 and cards[card.number].hi == 0:
            set_up(cards[card.number], card.lo, card.hi)
            put(cards[card.number], card)


@njit(cache=True, inline="always")
def forget(card: Array) -> None:
    """Reset a card's transaction statistics; keep its alerts (see `suspicion`), segment and profile."""
    card.last_arrival = 0
    card.max_time = 0
    card.mean = 0.0
    card.m2 = 0.0
    card.robust_mean = 0.0
    card.seen = 0


@njit(cache=True)
def locate(
    index: NDArray[np.int32],
    cards: Array,
    counters: Counters,
    lo: NDArray[np.uint64],
    hi: NDArray[np.uint64],
    places: Array,
    numbers: NDArray[np.int32],
    added: NDArray[np.int32],
) -> int:
    """Find or add the card of each row; `cards` and `index` must have room for one more per row.

    This is a separate pass so that the cache misses of many rows overlap instead of stalling the feature
    kernel.

    Returns:
        How many cards were added; `added` holds their numbers.
    """
    count = 0
    for row in range(lo.size):
        number = find(index, cards, lo[row], hi[row])
        if number < 0:
            number = add_card(index, cards, counters, -1 - number, lo[row], hi[row], places[row])
            added[count] = number
            count += 1
        numbers[row] = number
    return count


@njit(cache=True)
def fill_index(index: NDArray[np.int32], cards: Array, count: int) -> None:
    """Rebuild the index from those of the first `count` cards that are in use."""
    index[:] = EMPTY
    for number in range(count):
        if cards[number].lo != 0 or cards[number].hi != 0:
            index[-1 - find(index, cards, cards[number].lo, cards[number].hi)] = number


@njit(cache=True)
def move_segment(card: Array, events: Array, counters: Counters, size_class: int) -> bool:
    """Move a card's events to a segment of `size_class`; False if the events array has no room for it."""
    segment = take(events, counters, size_class)
    if segment == EMPTY:
        return False
    old = card.segment
    if old != EMPTY:
        for i in range(card.events):
            events[segment + i] = events[old + i]
        give_back(events, counters, old, card.size_class)
    card.segment = segment
    card.size_class = size_class
    return True


@njit(cache=True)
def _drop_oldest(card: Array, events: Array, counters: Counters, dropped: int) -> None:
    for i in range(card.events - dropped):
        events[card.segment + i] = events[card.segment + i + dropped]
    card.events -= dropped
    counters[LIVE_EVENTS] -= dropped


@njit(cache=True)
def make_room(card: Array, events: Array, counters: Counters, horizon: int) -> int:
    """Make room for one more event in a card's segment.

    A card that is not hot drops only events that no window can reach. So the moment of dropping changes
    no feature; it may differ in a rebuilt state, whose segments have other sizes.

    Args:
        horizon: ms; events at or before it are out of every window's reach.

    Returns:
        ROOM, MORE_EVENTS if the events array must grow first, or TOO_MANY if the card must become hot first.
    """
    if card.segment == EMPTY:
        return ROOM if move_segment(card, events, counters, 0) else MORE_EVENTS
    capacity = FIRST_CAPACITY << card.size_class
    if card.events < capacity:
        return ROOM
    largest = card.size_class == SIZE_CLASSES - 1
    if card.hot != EMPTY:
        if largest:
            _drop_oldest(card, events, counters, MOST_EVENTS // 2)
            return ROOM
        return ROOM if move_segment(card, events, counters, card.size_class + 1) else MORE_EVENTS
    unreachable = 0
    while unreachable < card.events and (events[card.segment + unreachable].when >> WHEN_SHIFT) <= horizon:
        unreachable += 1
    # at least a quarter, so that later inserts repay the copying; at the largest size any number will do
    if unreachable * 4 >= capacity or (largest and unreachable > 0):
        _drop_oldest(card, events, counters, unreachable)
        return ROOM
    if largest:
        return TOO_MANY
    return ROOM if move_segment(card, events, counters, card.size_class + 1) else MORE_EVENTS
