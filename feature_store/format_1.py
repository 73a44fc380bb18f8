"""State of format 1 as today's records: what it held, and what it did not say.

Format 1 wrote whole records. It did not know a card's partition, and it kept hashes whole.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import FORGET_AFTER_MS
from feature_store.event_columns import join, split
from feature_store.layout import (
    ALERT_HOURS,
    BUCKET,
    CARD,
    EVENT,
    HOT,
    MERCHANT_MASK,
    PROFILE,
    TRANSACTION,
    TRANSACTION_MASK,
)

Arrays = Mapping[str, NDArray[Any]]

_CARD = np.dtype([(name, "i4" if name == "size_class" else CARD[name]) for name in CARD.names or ()
                  if name != "partition"], align=True)  # fmt: skip
_KEPT = ("lo", "hi", "time", "arrival", "amount", "transaction", "merchant", "country")


def snapshot(raw: Arrays) -> dict[str, NDArray[Any]]:
    """Records of a snapshot piece by the names of `pieces.PieceRecords`."""
    old = raw["cards"].view(_CARD)
    cards = np.zeros(old.size, dtype=CARD)
    for name in _CARD.names or ():
        cards[name] = old[name]
    cards["partition"] = -1
    events = raw["events"].view(EVENT).copy()
    events["transaction"] &= np.uint64(TRANSACTION_MASK)
    events["merchant"] &= np.uint64(MERCHANT_MASK)
    # the way to columns and back gives events the flags that format 1 did not have
    events = join(cards, split(cards, events, FORGET_AFTER_MS), "of format 1")
    ids = raw["ids"].astype(np.uint64)
    return {
        "cards": cards,
        "events": events,
        "profiles": raw["profiles"].view(PROFILE),
        "version_counts": raw["version_counts"].astype(np.uint32),
        "alert_hours": raw["alert_hours"].view(ALERT_HOURS),
        "hots": raw["hots"].view(HOT),
        "buckets": raw["buckets"].view(BUCKET),
        "ids": np.where(ids == 0, ids, np.maximum(ids & np.uint64(TRANSACTION_MASK), np.uint64(1))),
    }


def delta(raw: Arrays) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Profile changes (PROFILE) and accepted transactions (TRANSACTION) of a delta."""
    transactions = np.zeros(raw["cards"].size, dtype=TRANSACTION)
    for name in _KEPT:
        transactions[name] = raw[f"t.{name}"]
    transactions["partition"] = -1
    return raw["changes"].view(PROFILE), transactions
