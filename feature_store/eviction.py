"""Kernels that remove cards which the rule of 90 days has forgotten already.

A card is forgotten by the first transaction that arrives more than FORGET_AFTER_MS after its last one (see
`kernels`); removing it before that transaction comes changes nothing but memory. That such a transaction will
be the next one is known when the card's own partition has delivered an arrival more than EVICT_AFTER_MS past
the card's last: within a partition arrivals do not go back, or by less than the day between the two. So it
makes no difference when, how often and how far the state is swept.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import Array, Counters, find, forget
from feature_store.catalogue import DAY_MS, FORGET_AFTER_MS
from feature_store.hot import cool_down
from feature_store.jit import njit
from feature_store.layout import (
    CARDS,
    EMPTY,
    FREE_ALERTED,
    FREE_CARD,
    FREE_CARDS,
    LIVE_EVENTS,
    SWEPT,
)
from feature_store.profiles import drop_superseded
from feature_store.segments import give_back

EVICT_AFTER_MS = FORGET_AFTER_MS + DAY_MS
SWEEP = 4096
"""Cards looked at in a batch."""
MOST_EVICTED = 512
"""Cards removed in a batch."""


@njit(cache=True)
def advance(frontiers: NDArray[np.int64], partitions: NDArray[np.int32], arrivals: NDArray[np.int64]) -> None:
    """Move the greatest arrival of each partition on."""
    for row in range(partitions.size):
        if partitions[row] >= 0:
            frontiers[partitions[row]] = max(frontiers[partitions[row]], arrivals[row])


@njit(cache=True)
def find_idle(
    cards: Array, counters: Counters, frontiers: NDArray[np.int64], found: NDArray[np.int32]
) -> int:
    """Look at the next SWEEP cards; numbers of those to evict go into `found`.

    Returns:
        How many were found, at most the size of `found`.
    """
    count = 0
    for _ in range(min(SWEEP, counters[CARDS])):
        if count == found.size:
            break
        number = counters[SWEPT] % counters[CARDS]
        counters[SWEPT] = number + 1
        card = cards[number]
        if card.seen == 0 or not 0 <= card.partition < frontiers.size:
            continue
        if frontiers[card.partition] - card.last_arrival > EVICT_AFTER_MS:
            found[count] = number
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
    numbers: NDArray[np.int32],
) -> None:
    """Remove what the transactions of these cards left; a card without a profile goes altogether."""
    for number in numbers:
        card = cards[number]
        # no transaction before the end of the silence is going to come
        drop_superseded(card, profiles, counters, card.last_arrival + FORGET_AFTER_MS)
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
            cool_down(card, hots, counters)
        forget(card)
        card.alerts = 0
        if card.profile == EMPTY:
            _unindex(index, cards, card.lo, card.hi)
            card.lo = 0
            card.hi = 0
            release(card, number, counters)


@njit(cache=True)
def release(card: Array, number: int, counters: Counters) -> None:
    """Enter a card that is nobody's into the list of free ones."""
    card.segment = counters[FREE_CARD]
    counters[FREE_CARD] = number
    counters[FREE_CARDS] += 1


@njit(cache=True)
def release_unused(cards: Array, counters: Counters) -> None:
    """List the free cards of a rebuilt state; a replay frees numbers and gives them away as it is told."""
    counters[FREE_CARD] = EMPTY
    counters[FREE_CARDS] = 0
    for number in range(counters[CARDS]):
        if cards[number].lo == 0 and cards[number].hi == 0:
            release(cards[number], number, counters)


@njit(cache=True)
def _unindex(index: NDArray[np.int32], cards: Array, lo: np.uint64, hi: np.uint64) -> None:
    """Take a card out of the index, closing the gap (Knuth, TAOCP 6.4, R); a rebuild has none yet."""
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
        # may move into the gap unless its home lies behind the gap
        if ((at - home) & mask) >= ((at - gap) & mask):
            index[gap] = index[at]
            gap = at
    index[gap] = EMPTY
