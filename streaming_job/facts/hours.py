"""The open hours of a key group: its transactions counted by merchant and hour, until they become facts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import joined
from feature_store.merchants.catalogue import NEVER
from feature_store.merchants.facts import added_up, hour_counts, merchant_hash
from feature_store.merchants.hours import HOUR_COUNT, GrowingHours
from feature_store.state.journal import PieceSink, PieceStore
from streaming_job.facts.tiers import Tiers

FIRST_HOUR = 0
OPEN = "mo"
"""Prefix of the pieces."""


class OpenHours:
    """The counts of open hours."""

    def __init__(self, store: PieceStore, extra: dict[str, Any]) -> None:
        """Continue from persisted state.

        Args:
            extra: `Meta.extra`, persisted as JSON.
        """
        self._tiers = Tiers(OPEN, HOUR_COUNT, extra, "hour", added_up)
        self._counts = GrowingHours()
        for part in self._tiers.parts(store):
            self._counts.add(part, FIRST_HOUR)
        self._unsaved: list[NDArray[np.void]] = []
        self._has_closed = False

    def add(self, merchants: NDArray[np.uint64], arrivals: NDArray[np.int64]) -> None:
        """Count accepted transactions.

        Args:
            merchants: hashes, shape (n,).
            arrivals: ms, shape (n,).
        """
        if merchants.size:
            counts = hour_counts(merchant_hash(merchants), arrivals)
            self._counts.add(counts, FIRST_HOUR)
            self._unsaved.append(counts)

    def close(self, until: int) -> NDArray[np.void]:
        """Close the hours before `until`, and return their counts (HOUR_COUNT)."""
        counts = self._counts.before(until)
        self._counts.drop_before(until)
        self._has_closed |= counts.size > 0
        return counts

    def persist(self, store: PieceSink) -> None:
        """Write the changes since the last call."""
        if self._has_closed:
            self._tiers.replace(store, self._counts.before(NEVER))
        elif self._unsaved:
            self._tiers.add(store, joined(self._unsaved))
        self._unsaved, self._has_closed = [], False
