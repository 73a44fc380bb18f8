"""Kernels that look at what came lately, by arrival: counts, and whether a transaction came before.

The payload's event time is the word of whoever sent it; the arrival is Kafka's. A card's arrivals never go
back: one that does, because a broker's clock did, counts as the one before it. So a count by arrival cannot
be kept small by dates. The arrival stands in those bits of an event that its two hashes leave free, modulo
34 years: `transaction` is the arrival, and below it one half of the id; `merchant` has the other half on top.
What can count in the longest arrival window, and what can be repeated, has an event time within the
allowed lateness and an hour: one short walk from the newest event finds both.

Of a hot card the counts come from three rings of 60 buckets, aligned to the epoch: exact but for the events
of less than one bucket (1/60 of the window) at the old edge, which are not counted. Never more than is true.
"""

import numpy as np

from feature_store.cards import Array
from feature_store.catalogue import ARRIVAL_WINDOWS, COLUMN, HOUR_MS
from feature_store.jit import njit
from feature_store.layout import (
    ARRIVAL_BUCKETS,
    COUNTRY_SHIFT,
    MERCHANT_BITS,
    MERCHANT_MASK,
    TRANSACTION_BITS,
    WHEN_SHIFT,
)

REPEAT_MARGIN_MS = HOUR_MS
"""A transaction id is known for the allowed lateness, and for as much more as a broker's clock may go back:
what repeats an older event is itself too late. Not less than the longest arrival window."""
LONGEST = max(ARRIVAL_WINDOWS.values())
_WIDTHS = np.array([length // ARRIVAL_BUCKETS for length in ARRIVAL_WINDOWS.values()], dtype=np.int64)
_WINDOWS = len(ARRIVAL_WINDOWS)
_C_MINUTE, _C_FIVE, _C_LONGEST = (COLUMN[f"arrivals_{name}"] for name in ARRIVAL_WINDOWS)
NEW, REPEATED, CONFLICTING = range(3)
"""What an id says of a transaction: not met lately; met with this content; met with another content only."""

_HALF = TRANSACTION_BITS // 2
_IDS, _MERCHANTS = np.uint64((1 << _HALF) - 1), np.uint64(MERCHANT_MASK)
_ABOVE_ID, _ABOVE_MERCHANT = np.uint64(_HALF), np.uint64(MERCHANT_BITS)
# an age where an event has its arrival; what stands below it makes no difference to `<`
_MINUTE, _FIVE, _LONGEST = (np.uint64(length << _HALF) for length in ARRIVAL_WINDOWS.values())


@njit(cache=True, inline="always")
def stamp(event: Array, transaction: np.uint64, merchant: np.uint64, arrival: int) -> None:
    """Write an event's two hashes, and its arrival."""
    event.transaction = (np.uint64(arrival) << _ABOVE_ID) | (transaction & _IDS)
    event.merchant = ((transaction >> _ABOVE_ID) << _ABOVE_MERCHANT) | merchant


@njit(cache=True, inline="always")
def transaction_of(event: Array) -> np.uint64:
    """TRANSACTION_MASK of the hash of an event's id."""
    return ((event.merchant >> _ABOVE_MERCHANT) << _ABOVE_ID) | (event.transaction & _IDS)


@njit(cache=True, inline="always")
def _age(event: Array, arrival: int) -> np.uint64:
    """The age where an event has its arrival, with whatever below it."""
    return ((np.uint64(arrival) << _ABOVE_ID) | _IDS) - event.transaction


@njit(cache=True, inline="always")
def age(event: Array, arrival: int) -> int:
    """How long before `arrival` an event of the card arrived, ms; `arrival` is not before its own."""
    return int(_age(event, arrival) >> _ABOVE_ID)


@njit(cache=True, inline="always")
def agrees(event: Array, when: int, amount: int, merchant: np.uint64) -> bool:
    """Whether an event's content is this: time and country (`when`, whatever its flags), amount, merchant."""
    return bool(
        (event.when >> COUNTRY_SHIFT) == (when >> COUNTRY_SHIFT)
        and event.amount == amount
        and (event.merchant & _MERCHANTS) == merchant
    )


@njit(cache=True, inline="always")
def look_back(
    card: Array,
    events: Array,
    transaction: np.uint64,
    when: int,
    amount: int,
    merchant: np.uint64,
    known_from: int,
    arrival: int,
) -> tuple[int, int, int, int]:
    """What a card that is not hot has of a transaction's id, and its others by arrival.

    Args:
        card: the card.
        events: events of the key group.
        transaction: TRANSACTION_MASK of the id's hash.
        when: event time and country, as an event has them.
        amount: 1/10,000 currency units.
        merchant: MERCHANT_MASK of the merchant's hash.
        known_from: ms; events before it are out of reach.
        arrival: of the transaction, ms.

    Returns:
        NEW, REPEATED or CONFLICTING; events in the windows of ARRIVAL_WINDOWS that end with `arrival`.
    """
    repeated = met = False
    minute = five = longest = 0
    half = transaction & _IDS
    at = card.segment + card.events - 1
    while at >= card.segment and (events[np.uint64(at)].when >> WHEN_SHIFT) >= known_from:
        event = events[np.uint64(at)]
        old = _age(event, arrival)
        longest += old < _LONGEST
        five += old < _FIVE
        minute += old < _MINUTE
        if (event.transaction & _IDS) == half and transaction_of(event) == transaction:
            met = True
            repeated |= agrees(event, when, amount, merchant)
        at -= 1
    return (REPEATED if repeated else CONFLICTING) if met else NEW, minute, five, longest


@njit(cache=True, inline="always")
def arrival_features(out: Array, minute: int, five: int, longest: int) -> None:
    """Set the counts by arrival from those of the others."""
    out[_C_MINUTE] = minute + 1
    out[_C_FIVE] = five + 1
    out[_C_LONGEST] = longest + 1


@njit(cache=True)
def clear_rings(hot: Array, arrival: int) -> None:
    """Empty a hot card's arrival rings; they end with the bucket of `arrival`."""
    for window in range(_WINDOWS):
        hot.arrivals[window, :] = 0
        hot.arrived[window] = 0
        hot.newest[window] = arrival // _WIDTHS[window]


@njit(cache=True)
def turn_rings(hot: Array, arrival: int) -> None:
    """Let the arrival rings end with the bucket of `arrival`: what is out of their windows goes."""
    for window in range(_WINDOWS):
        index = arrival // _WIDTHS[window]
        for gone in range(max(hot.newest[window] + 1, index - ARRIVAL_BUCKETS + 1), index + 1):
            hot.arrived[window] -= hot.arrivals[window, gone % ARRIVAL_BUCKETS]
            hot.arrivals[window, gone % ARRIVAL_BUCKETS] = 0
        hot.newest[window] = index


@njit(cache=True)
def enter_arrival(hot: Array, arrival: int) -> None:
    """Count an event in the rings that still reach back to its arrival, which is not after their end."""
    for window in range(_WINDOWS):
        index = arrival // _WIDTHS[window]
        if index > hot.newest[window] - ARRIVAL_BUCKETS:
            hot.arrivals[window, index % ARRIVAL_BUCKETS] += 1
            hot.arrived[window] += 1
