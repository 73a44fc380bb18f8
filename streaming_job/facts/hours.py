"""The open hours of a key group: its transactions counted by merchant and hour, until they become facts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.merchants.facts import HOUR_COUNT, added_up, hour_counts, merchant_hash
from feature_store.state.journal import PieceStore
from streaming_job.facts.tiers import Tiers

MAX_PARTS = 256


class OpenHours:
    """The counts of open hours."""

    def __init__(self, store: PieceStore, extra: dict[str, Any]) -> None:
        """Continue from persisted state.

        Args:
            store: the persisted pieces.
            extra: `Meta.extra`, persisted as JSON.

        Raises:
            StateDamagedError: a piece is missing or damaged.
        """
        self._tiers = Tiers("mo", HOUR_COUNT, extra)
        self._parts = [self._tiers.load(store)]
        self._unsaved: list[NDArray[np.void]] = []
        self._has_closed = False

    def add(self, merchants: NDArray[np.uint64], arrivals: NDArray[np.int64]) -> None:
        """Count accepted transactions.

        Args:
            merchants: hashes, shape (n,).
            arrivals: ms, shape (n,).
        """
        if merchants.size:
            counts = added_up(hour_counts(merchant_hash(merchants), arrivals))
            self._parts.append(counts)
            self._unsaved.append(counts)
            if len(self._parts) > MAX_PARTS:
                self._parts = [added_up(np.concatenate(self._parts))]

    def close(self, until: int) -> NDArray[np.void]:
        """Close the hours before `until`, and return their counts (HOUR_COUNT)."""
        counts = added_up(np.concatenate(self._parts))
        over = counts["hour"] < until
        if over.any():
            self._parts, self._has_closed = [counts[~over]], True
        return counts[over]

    def seal(self, store: PieceStore) -> None:
        """Write the changes since the last call."""
        if self._has_closed:
            self._tiers.replace(store, added_up(np.concatenate(self._parts)))
        elif self._unsaved:
            self._tiers.add(store, added_up(np.concatenate(self._unsaved)))
        self._unsaved, self._has_closed = [], False
