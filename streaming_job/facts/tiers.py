"""Append-only rows persisted in tiered pieces: each epoch adds a piece, and small pieces are merged.

A piece is merged with the previous one while that has less than twice its rows. So there are about log2(n)
pieces, and each row is written about log2(n) times.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.state.codec import StateDamagedError, decode, encode, records
from feature_store.state.journal import PieceStore


class Tiers:
    """The pieces of a set of rows: their names and sizes, without the rows."""

    def __init__(self, prefix: str, dtype: np.dtype[np.void], extra: dict[str, Any]) -> None:
        """Continue from persisted state.

        Args:
            prefix: prefix of the pieces' names.
            dtype: dtype of the rows.
            extra: `Meta.extra`, which lists the pieces under `prefix`.
        """
        self._prefix, self._dtype = prefix, dtype
        self._pieces: list[list[int]] = extra.setdefault(prefix, [])
        """[number, rows] of each piece."""

    def load(self, store: PieceStore) -> NDArray[np.void]:
        """Return all rows, in the order in which they were added.

        Raises:
            StateDamagedError: a piece is missing or damaged.
        """
        parts = [np.zeros(0, dtype=self._dtype)]
        for number, rows in self._pieces:
            part = self._read(store, number)
            if part.size != rows:
                raise StateDamagedError(
                    f"state piece {self._prefix}{number} has {part.size} rows, not {rows}; "
                    "restore the checkpoint"
                )
            parts.append(part)
        return np.concatenate(parts)

    def add(self, store: PieceStore, rows: NDArray[np.void]) -> None:
        """Add rows."""
        if not rows.size:
            return
        number = self._next()
        while self._pieces and self._pieces[-1][1] < 2 * rows.size:
            before, _ = self._pieces.pop()
            rows = np.concatenate([self._read(store, before), rows])
            store.remove(f"{self._prefix}{before}")
        self._put(store, number, rows)

    def replace(self, store: PieceStore, rows: NDArray[np.void]) -> None:
        """Replace all rows."""
        number = self._next()
        for old, _ in self._pieces:
            store.remove(f"{self._prefix}{old}")
        self._pieces[:] = []
        if rows.size:
            self._put(store, number, rows)

    def _next(self) -> int:
        """Return the number of the next piece."""
        return self._pieces[-1][0] + 1 if self._pieces else 0

    def _put(self, store: PieceStore, number: int, rows: NDArray[np.void]) -> None:
        self._pieces.append([number, rows.size])
        store.put(f"{self._prefix}{number}", encode({"rows": rows}))

    def _read(self, store: PieceStore, number: int) -> NDArray[np.void]:
        name = f"{self._prefix}{number}"
        blob = store.get(name)
        if blob is None:
            raise StateDamagedError(
                f"state piece {name} is missing; restore the checkpoint or replay the log"
            )
        return records(decode(blob, name), "rows", self._dtype)
