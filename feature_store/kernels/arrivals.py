"""Kernels of recent arrivals: counts by arrival, and detection of repeated transactions.

The sender chooses the event time; Kafka sets the arrival. So a sender cannot lower a count by arrival with
false event times. A card's arrivals never go back: an arrival before the previous one (a broker's clock went
back) counts as equal to it.

An event stores its arrival, modulo 34 years, in the bits that its two hashes leave free: `transaction` has
the arrival in its high bits and one half of the id's hash in its low bits; `merchant` has the other half in
its high bits and the merchant's hash in its low bits.

An accepted event arrives at most the allowed lateness after its event time. So an event whose event time is
more than the allowed lateness plus one hour before a transaction's arrival arrived more than an hour before
it, outside all arrival windows. Nor can the transaction repeat that event: a repetition has the same event
time, so it would be too late. Hence one short walk from the newest event finds all that is counted or
repeated.

The counts of a hot card (one with too many events to walk over, see `hot`) come from three rings of 60
buckets, aligned to 1970-01-01. All 60 are counted. The window begins within the bucket before them, which is
no longer kept: a count misses the events of that part of the window, at most 1/60 of it, and never exceeds
the true count.
"""

import numpy as np

from feature_store.catalogue import ARRIVAL_WINDOWS, COLUMN, HOUR_MS
from feature_store.jit import njit
from feature_store.kernels.cards import Array
from feature_store.layout import (
    ARRIVAL_BUCKETS,
    COUNTRY_SHIFT,
    MERCHANT_BITS,
    MERCHANT_MASK,
    TRANSACTION_BITS,
    WHEN_SHIFT,
)

REPEAT_MARGIN_MS = HOUR_MS
"""Transaction ids are remembered for the allowed lateness plus this margin, by which a broker's clock may go
back. A repetition of an older event is itself too late. The margin is at least the longest arrival window."""
LONGEST = max(ARRIVAL_WINDOWS.values())
_WIDTHS = np.array([length // ARRIVAL_BUCKETS for length in ARRIVAL_WINDOWS.values()], dtype=np.int64)
_WINDOWS = len(ARRIVAL_WINDOWS)
_C_MINUTE, _C_FIVE, _C_LONGEST = (COLUMN[f"arrivals_{name}"] for name in ARRIVAL_WINDOWS)
NEW, REPEATED, CONFLICTING = range(3)
"""Outcomes of looking up a transaction id: not seen recently; seen with the same content; seen with other
content only."""

_HALF = TRANSACTION_BITS // 2
_IDS, _MERCHANTS = np.uint64((1 << _HALF) - 1), np.uint64(MERCHANT_MASK)
_ABOVE_ID, _ABOVE_MERCHANT = np.uint64(_HALF), np.uint64(MERCHANT_BITS)
# window lengths, shifted to the bits of the arrival in an event: `_age(...) < _MINUTE` is right whatever the
# lower bits of the age are
_MINUTE, _FIVE, _LONGEST = (np.uint64(length << _HALF) for length in ARRIVAL_WINDOWS.values())


@njit(cache=True, inline="always")
def stamp(event: Array, transaction: np.uint64, merchant: np.uint64, arrival: int) -> None:
    """Write the two hashes and the arrival into an event."""
    event.transaction = (np.uint64(arrival) << _ABOVE_ID) | (transaction & _IDS)
    event.merchant = ((transaction >> _ABOVE_ID) << _ABOVE_MERCHANT) | merchant


@njit(cache=True, inline="always")
def transaction_of(event: Array) -> np.uint64:
    """Return the low TRANSACTION_BITS bits of the hash of an event's transaction id."""
    return ((event.merchant >> _ABOVE_MERCHANT) << _ABOVE_ID) | (event.transaction & _IDS)


@njit(cache=True, inline="always")
def _age(event: Array, arrival: int) -> np.uint64:
    """Compute an event's age at `arrival`, ms, shifted to the arrival's bits; lower bits are arbitrary."""
    return ((np.uint64(arrival) << _ABOVE_ID) | _IDS) - event.transaction


@njit(cache=True, inline="always")
def age(event: Array, arrival: int) -> int:
    """Compute an event's age at `arrival`, ms; the event must have arrived by then."""
    return int(_age(event, arrival) >> _ABOVE_ID)


@njit(cache=True, inline="always")
def agrees(event: Array, when: int, money: int, merchant: np.uint64) -> bool:
    """Return whether an event has this content: `when` without its flags, `money`, merchant."""
    return bool(
        (event.when >> COUNTRY_SHIFT) == (when >> COUNTRY_SHIFT)
        and event.money == money
        and (event.merchant & _MERCHANTS) == merchant
    )


@njit(cache=True, inline="always")
def look_back(
    card: Array,
    events: Array,
    transaction: np.uint64,
    when: int,
    money: int,
    merchant: np.uint64,
    known_from: int,
    arrival: int,
) -> tuple[int, int, int, int]:
    """Look up a transaction id in a card that is not hot, and count the card's other transactions by arrival.

    Args:
        transaction: low TRANSACTION_BITS bits of the id's hash.
        when: event time and country, in the layout of an event.
        money: amount and currency, in the layout of an event.
        merchant: low MERCHANT_BITS bits of the merchant's hash.
        known_from: event time, ms; older events are not looked at.
        arrival: arrival of the transaction, ms.

    Returns:
        NEW, REPEATED or CONFLICTING; then, for each of ARRIVAL_WINDOWS, the number of events in the window
        that ends at `arrival`.
    """
    repeated = seen = False
    minute = five = longest = 0
    half = transaction & _IDS
    at = card.segment + card.events - 1
    while at >= card.segment and (events[np.uint64(at)].when >> WHEN_SHIFT) >= known_from:
        event = events[np.uint64(at)]
        event_age = _age(event, arrival)
        longest += event_age < _LONGEST
        five += event_age < _FIVE
        minute += event_age < _MINUTE
        if (event.transaction & _IDS) == half and transaction_of(event) == transaction:
            seen = True
            repeated |= agrees(event, when, money, merchant)
        at -= 1
    return (REPEATED if repeated else CONFLICTING) if seen else NEW, minute, five, longest


@njit(cache=True, inline="always")
def arrival_features(out: Array, minute: int, five: int, longest: int) -> None:
    """Set the features by arrival from the counts of the card's other transactions."""
    out[_C_MINUTE] = minute + 1
    out[_C_FIVE] = five + 1
    out[_C_LONGEST] = longest + 1


@njit(cache=True)
def clear_rings(hot: Array, arrival: int) -> None:
    """Empty a hot card's arrival rings, and let them end with the bucket of `arrival`."""
    for window in range(_WINDOWS):
        hot.arrivals[window, :] = 0
        hot.arrived[window] = 0
        hot.newest[window] = arrival // _WIDTHS[window]


@njit(cache=True)
def turn_rings(hot: Array, arrival: int) -> None:
    """Advance the arrival rings to the bucket of `arrival`; drop the buckets that leave the windows."""
    for window in range(_WINDOWS):
        index = arrival // _WIDTHS[window]
        for expired in range(max(hot.newest[window] + 1, index - ARRIVAL_BUCKETS + 1), index + 1):
            hot.arrived[window] -= hot.arrivals[window, expired % ARRIVAL_BUCKETS]
            hot.arrivals[window, expired % ARRIVAL_BUCKETS] = 0
        hot.newest[window] = index


@njit(cache=True)
def enter_arrival(hot: Array, arrival: int) -> None:
    """Count an event in the rings that reach back to its arrival, which must not be after their end."""
    for window in range(_WINDOWS):
        index = arrival // _WIDTHS[window]
        if index > hot.newest[window] - ARRIVAL_BUCKETS:
            hot.arrivals[window, index % ARRIVAL_BUCKETS] += 1
            hot.arrived[window] += 1
