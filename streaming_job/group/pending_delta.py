"""The profile changes and transactions that a group's state includes, and that are in no delta yet."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import PROFILE, TRANSACTION, joined
from feature_store.state.deltas import Delta


class PendingDelta:
    """Rows for the next delta, in the order of the log."""

    def __init__(self) -> None:
        self._changes: list[tuple[NDArray[Any], ...]] = []
        self._transactions: list[tuple[NDArray[Any], ...]] = []
        self.rows = 0
        """Number of profile changes and transactions, including transactions that were not accepted."""

    def add_changes(self, changes: NDArray[np.void], cards: NDArray[np.int32]) -> None:
        """Add n profile changes.

        Args:
            changes: PROFILE, shape (n,).
            cards: card number of each, shape (n,).
        """
        self._changes.append((changes, cards))
        self.rows += changes.size

    def add_transactions(
        self,
        decided: int,
        batch: NDArray[np.void],
        cards: NDArray[np.int32],
        alerted: NDArray[np.bool_],
        suppressed: NDArray[np.bool_],
    ) -> None:
        """Add n accepted transactions.

        Args:
            decided: number of transactions decided, accepted or not.
            batch: TRANSACTION, shape (n,).
            cards: card number of each, shape (n,).
            alerted: which became alerts, shape (n,).
            suppressed: which became alerts that a cooldown suppressed, shape (n,).
        """
        self._transactions.append((batch, cards, alerted, suppressed))
        self.rows += decided

    def take(self) -> Delta:
        """Return all rows as a delta, and begin a new one."""
        changes, change_cards = _joined(self._changes, (PROFILE, np.int32))
        transactions = _joined(self._transactions, (TRANSACTION, np.int32, np.bool_, np.bool_))
        self._changes, self._transactions, self.rows = [], [], 0
        return Delta(changes, change_cards, *transactions)


def _joined(parts: list[Any], dtypes: tuple[Any, ...]) -> list[NDArray[Any]]:
    if not parts:
        return [np.zeros(0, dtype=dtype) for dtype in dtypes]
    records, *columns = zip(*parts, strict=True)
    return [joined(records), *map(np.concatenate, columns)]
