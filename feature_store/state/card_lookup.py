"""Lookup of a transaction by its id in the card's history, for labels.

A label matches a transaction among the events that the card keeps, if both conditions hold:

- the transaction arrived no later than the label, and its event time is less than `label_age_ms` before the
  label's arrival;
- the transaction arrived within the allowed lateness before the label, or the card was no stranger (see
  `forgetting`), which means here: another of its transactions meets the first condition, or a profile was on
  the log by the time of the transaction's arrival plus the allowed lateness.

With this rule the result is the same whether or not idle cards have been evicted. Events that a hot card has
dropped are not found.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.kernels.cards import find
from feature_store.kernels.windows import LONGEST
from feature_store.layout import (
    EMPTY,
    MERCHANT_BITS,
    MERCHANT_MASK,
    MOST_EVENTS,
    SPIKE,
    TRANSACTION_BITS,
    WHEN_SHIFT,
)
from feature_store.state.group_state import GroupState

CARD_TRANSACTION = np.dtype([("merchant", "u8"), ("arrival", "i8"), ("spike", "?")])
"""A transaction in the card's history: the MERCHANT_MASK bits of its merchant's hash, its arrival (ms), and
whether its amount was a spike."""

_HALF = np.uint64(TRANSACTION_BITS // 2)
_IDS = np.uint64((1 << (TRANSACTION_BITS // 2)) - 1)
_ARRIVALS = (1 << (64 - TRANSACTION_BITS // 2)) - 1


def label_age_ms(lateness_ms: int) -> int:
    """Compute how long after its event time a transaction can be labelled, ms: 30d + lateness - 1d."""
    return LONGEST + lateness_ms - DAY_MS


def may_drop(state: GroupState, lo: int, hi: int, more: int) -> bool:
    """Return whether a card may drop events that can be labelled when it gets up to `more` transactions.

    Only a card with too many events to keep each does so (see `kernels.cards`).
    """
    number = _number(state, lo, hi)
    events = int(state.arena.arrays["cards"][number]["events"]) if number >= 0 else 0
    return events + more > MOST_EVENTS


def find_transactions(state: GroupState, lo: int, hi: int, transaction: int, as_of: int) -> NDArray[np.void]:
    """Find a card's transactions with a given id; several if the id came with different contents.

    Args:
        state: it must keep ids.
        lo: low half of the card's hash.
        transaction: TRANSACTION_MASK bits of the id's hash.
        as_of: arrival of the label, ms.

    Returns:
        Records of CARD_TRANSACTION, in the order of event times.
    """
    arrays = state.arena.arrays
    number = _number(state, lo, hi)
    if number < 0:
        return np.zeros(0, dtype=CARD_TRANSACTION)
    card = arrays["cards"][number]
    first = max(int(card["segment"]), 0)
    events = arrays["events"][first : first + int(card["events"])]
    ids = (events["merchant"] >> np.uint64(MERCHANT_BITS) << _HALF) | (events["transaction"] & _IDS)
    last = int(card["last_arrival"])
    # events store arrivals modulo 34 years
    arrivals = last - ((last - (events["transaction"] >> _HALF).astype(np.int64)) & _ARRIVALS)
    lateness = state.lateness_ms
    visible = (arrivals <= as_of) & (events["when"] >> WHEN_SHIFT > as_of - label_age_ms(lateness))
    matches = np.flatnonzero(visible & (ids == np.uint64(transaction)))
    old = as_of - arrivals[matches] > lateness
    if old.any() and np.count_nonzero(visible) == 1:
        has_profile = _has_profile(state, int(card["profile"]), int(arrivals[matches[0]]) + lateness)
        matches = matches if has_profile else matches[~old]
    transactions = np.empty(matches.size, dtype=CARD_TRANSACTION)
    transactions["merchant"] = events["merchant"][matches] & np.uint64(MERCHANT_MASK)
    transactions["arrival"] = arrivals[matches]
    transactions["spike"] = (events["when"][matches] & SPIKE) != 0
    return transactions


def _number(state: GroupState, lo: int, hi: int) -> int:
    """Return the number of a card, negative if the state does not have it."""
    arrays = state.arena.arrays
    if not state.card_count:
        return EMPTY
    return int(find(arrays["index"], arrays["cards"], np.uint64(lo), np.uint64(hi)))


def _has_profile(state: GroupState, version: int, until: int) -> bool:
    """Return whether any version of a card's profile was on the log at `until` (ms)."""
    while version != EMPTY:
        if state.profiles[version]["arrival"] <= until:
            return True
        version = int(state.profiles[version]["older"])
    return False
