"""A transaction found again in its card's history by its id, for labels.

A label finds its transaction among the events that the card keeps, by this rule, which makes no difference
between a state that has evicted idle cards and one that has not yet:

- the event time is less than the longest window and the allowed lateness, less a day, before the label;
- the transaction arrived within the allowed lateness before the label; or it was no stranger's (see
  `forgetting`): the card had another such transaction, or a profile on the log within that time.

What a hot card has dropped is not found.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import find
from feature_store.catalogue import DAY_MS
from feature_store.group_state import GroupState
from feature_store.layout import EMPTY, MERCHANT_BITS, MERCHANT_MASK, SPIKE, TRANSACTION_BITS, WHEN_SHIFT
from feature_store.windows import LONGEST

FOUND = np.dtype([("merchant", "u8"), ("arrival", "i8"), ("spike", "?")])
"""What the history has of a transaction: the bits of its merchant's hash, its arrival (ms), and whether its
amount was a spike."""

_HALF = np.uint64(TRANSACTION_BITS // 2)
_IDS = np.uint64((1 << (TRANSACTION_BITS // 2)) - 1)
_ARRIVALS = (1 << (64 - TRANSACTION_BITS // 2)) - 1


def label_age_ms(lateness_ms: int) -> int:
    """How long after its event time a transaction can be labelled, ms."""
    return LONGEST + lateness_ms - DAY_MS


def find_transactions(state: GroupState, lo: int, hi: int, transaction: int, as_of: int) -> NDArray[np.void]:
    """A card's transactions of an id; several if other contents came under the same id.

    Args:
        state: of the card's key group; keeps ids.
        lo: low half of the card's hash.
        hi: high half.
        transaction: TRANSACTION_MASK of the id's hash.
        as_of: when the label arrived, ms.

    Returns:
        FOUND, in the order of event times.
    """
    arrays = state.arena.arrays
    number = -1
    if state.card_count:
        number = int(find(arrays["index"], arrays["cards"], np.uint64(lo), np.uint64(hi)))
    if number < 0:
        return np.zeros(0, dtype=FOUND)
    card = arrays["cards"][number]
    first = max(int(card["segment"]), 0)
    events = arrays["events"][first : first + int(card["events"])]
    ids = (events["merchant"] >> np.uint64(MERCHANT_BITS) << _HALF) | (events["transaction"] & _IDS)
    last = int(card["last_arrival"])
    # arrivals are kept modulo 34 years
    arrivals = last - ((last - (events["transaction"] >> _HALF).astype(np.int64)) & _ARRIVALS)
    lateness = state.lateness_ms
    seen = (arrivals <= as_of) & (events["when"] >> WHEN_SHIFT > as_of - label_age_ms(lateness))
    found = np.flatnonzero(seen & (ids == np.uint64(transaction)))
    old = as_of - arrivals[found] > lateness
    if old.any() and np.count_nonzero(seen) == 1:
        known = _has_profile(state, int(card["profile"]), int(arrivals[found[0]]) + lateness)
        found = found if known else found[~old]
    told = np.empty(found.size, dtype=FOUND)
    told["merchant"] = events["merchant"][found] & np.uint64(MERCHANT_MASK)
    told["arrival"] = arrivals[found]
    told["spike"] = (events["when"][found] & SPIKE) != 0
    return told


def _has_profile(state: GroupState, version: int, until: int) -> bool:
    """Whether any version of a card's profile was on the log by then."""
    while version != EMPTY:
        if state.profiles[version]["arrival"] <= until:
            return True
        version = int(state.profiles[version]["older"])
    return False
