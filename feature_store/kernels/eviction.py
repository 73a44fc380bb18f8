"""Kernels that evict cards whose next transaction would find them forgotten (see `forgetting`).

A card's silence is the time without transactions after which it is forgotten; a stranger's is shorter. The
card starts afresh with the first transaction that arrives after its silence. Removing the card before that
transaction frees memory and changes nothing else. The card may be removed once its partition has delivered an
arrival more than MARGIN_MS past the end of the silence: within a partition arrivals go back by less than that
margin, so the card's next transaction will come after the silence. A profile that arrives within the silence
makes the card no stranger; tables are read before transactions, so such a profile is in the state by then.
So it makes no difference when, how often and how far the state is swept.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.jit import njit
from feature_store.kernels.cards import Array, Counters, find, forget, set_up
from feature_store.kernels.forgetting import silence
from feature_store.kernels.hot import release_rings
from feature_store.kernels.profiles import drop_superseded
from feature_store.kernels.segments import give_back
from feature_store.layout import (
    CARDS,
    EMPTY,
    FREE_ALERTED,
    FREE_CARD,
    FREE_CARDS,
    LIVE_EVENTS,
    NO_PROFILE,
    SWEPT,
)

MARGIN_MS = DAY_MS
SWEEP = 4096
"""A sweep looks at this number of cards, and at two more for each card added since the last sweep: a flood of
new cards is swept as fast as it arrives."""
MOST_EVICTED = 512
"""A sweep removes at most this number of cards, and two more for each card added since the last sweep."""


@njit(cache=True)
def advance(frontiers: NDArray[np.int64], partitions: NDArray[np.int32], arrivals: NDArray[np.int64]) -> None:
    """Update the greatest arrival of each partition."""
    for row in range(partitions.size):
        if partitions[row] >= 0:
            frontiers[partitions[row]] = max(frontiers[partitions[row]], arrivals[row])


@njit(cache=True)
def find_idle(
    cards: Array,
    profiles: Array,
    counters: Counters,
    frontiers: NDArray[np.int64],
    lateness_ms: int,
    looks: int,
    idle: NDArray[np.int32],
) -> int:
    """Look at the next `looks` cards and write the numbers of those to evict into `idle`.

    Returns:
        How many numbers were written, at most the size of `idle`.
    """
    count = 0
    for _ in range(min(looks, counters[CARDS])):
        if count == idle.size:
            break
        number = counters[SWEPT] % counters[CARDS]
        counters[SWEPT] = number + 1
        card = cards[number]
        if card.seen == 0 or not 0 <= card.partition < frontiers.size:
            continue
        if frontiers[card.partition] - card.last_arrival > MARGIN_MS + silence(card, profiles, lateness_ms):
            idle[count] = number
            count += 1
    return count


@njit(cache=True)
def evict(
    index: NDArray[np.int32],
    cards: Array,
    events: Array,
    profiles: Array,
    hours: Array,
    hots: Array,
    counters: Counters,
    lateness_ms: int,
    numbers: NDArray[np.int32],
) -> None:
    """Remove all transaction state of the cards `numbers`; remove a card altogether if it has no profile."""
    for number in numbers:
        card = cards[number]
        # no transaction of the card will arrive before the end of its silence
        drop_superseded(card, profiles, counters, card.last_arrival + silence(card, profiles, lateness_ms))
        if card.segment != EMPTY:
            give_back(events, counters, card.segment, card.size_class)
            counters[LIVE_EVENTS] -= card.events
            card.segment = EMPTY
            card.size_class = EMPTY
            card.events = 0
        if card.alert_hours != EMPTY:
            hours[card.alert_hours].hour = counters[FREE_ALERTED]
            counters[FREE_ALERTED] = card.alert_hours
            card.alert_hours = EMPTY
        if card.hot != EMPTY:
            release_rings(card, hots, counters)
        forget(card)
        card.alerts = 0
        if card.profile == EMPTY:
            _unindex(index, cards, card.lo, card.hi)
            card.lo = 0
            card.hi = 0
            counters[NO_PROFILE] -= 1
            release(card, number, counters)


@njit(cache=True)
def release(card: Array, number: int, counters: Counters) -> None:
    """Put an unused card on the free list."""
    card.segment = counters[FREE_CARD]
    counters[FREE_CARD] = number
    counters[FREE_CARDS] += 1


@njit(cache=True)
def release_unused(cards: Array, counters: Counters) -> None:
    """Rebuild the free list of a rebuilt state, and count the used cards that have no profile.

    A replay frees and assigns card numbers as the deltas say, without the free list. In a snapshot, an
    unused card record is all zero; `set_up` replaces its references, because 0 would refer to record 0.
    """
    counters[FREE_CARD] = EMPTY
    counters[FREE_CARDS] = 0
    counters[NO_PROFILE] = 0
    for number in range(counters[CARDS]):
        if cards[number].lo == 0 and cards[number].hi == 0:
            set_up(cards[number], cards[number].lo, cards[number].hi)
            release(cards[number], number, counters)
        elif cards[number].profile == EMPTY:
            counters[NO_PROFILE] += 1


@njit(cache=True)
def _unindex(index: NDArray[np.int32], cards: Array, lo: np.uint64, hi: np.uint64) -> None:
    """Remove a card from the index, if it is there, and close the gap (Knuth, TAOCP 6.4, Algorithm R)."""
    number = find(index, cards, lo, hi)
    if number < 0:
        return
    mask = np.int64(index.size - 1)
    gap = np.int64(lo & np.uint64(mask))
    while index[gap] != number:
        gap = (gap + 1) & mask
    at = gap
    while True:
        at = (at + 1) & mask
        if index[at] == EMPTY:
            break
        home = np.int64(cards[index[at]].lo & np.uint64(mask))
        # the entry may move into the gap, unless its home slot comes after the gap
        if ((at - home) & mask) >= ((at - gap) & mask):
            index[gap] = index[at]
            gap = at
    index[gap] = EMPTY
