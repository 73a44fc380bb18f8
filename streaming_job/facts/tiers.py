"""Append-only rows persisted in tiered pieces: each call of `add` adds a piece; small pieces are merged.

A new piece is merged with the previous piece while the previous piece has less than twice as many rows, and
both together have at most MOST_ROWS. So a piece that can still be merged has at least twice as many rows as
the next: at any time there are about log2(MOST_ROWS) such pieces, each row is written about log2(MOST_ROWS)
times, and merging writes no piece of more than MOST_ROWS rows. Old rows are removed by whole pieces.

Pieces that can still be merged are kept in memory, encoded, because the store is read at the opening only.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.layout import joined
from feature_store.state.codec import StateDamagedError, decode, encode, records
from feature_store.state.journal import PieceSink, PieceStore

Condense = Callable[[NDArray[np.void]], NDArray[np.void]]
MOST_ROWS = 1 << 20


class Tiers:
    """The pieces of a set of rows: their names and sizes, without the rows."""

    def __init__(
        self,
        prefix: str,
        dtype: np.dtype[np.void],
        extra: dict[str, Any],
        time: str,
        condense: Condense = lambda rows: rows,
    ) -> None:
        """Continue from persisted state.

        Args:
            prefix: prefix of the pieces' names.
            extra: `Meta.extra`, which lists the pieces under `prefix`.
            time: name of the field with a row's time.
            condense: returns an equivalent of a piece's rows, with fewer rows if possible.
        """
        self._condense = condense
        self._prefix, self._dtype, self._time = prefix, dtype, time
        self._newest: dict[int, int] = {}
        """Greatest time of each piece, by the piece's number; pieces that are stored have one once loaded."""
        self._pieces: list[list[int]] = extra.setdefault(prefix, [])
        """[number, rows] of each piece."""
        self._mergeable: dict[int, bytes] = {}
        """Blob of each piece that a later one may be merged with, by the piece's number."""

    def load(self, store: PieceStore) -> NDArray[np.void]:
        """Return all rows, in the order in which they were added.

        Raises:
            StateDamagedError: a piece is missing or damaged.
        """
        return joined([np.zeros(0, dtype=self._dtype), *self.parts(store)])

    def parts(self, store: PieceStore) -> Iterator[NDArray[np.void]]:
        """Yield all rows, piece by piece; see `load`."""
        self._mergeable = {}
        for index, (number, rows) in enumerate(self._pieces):
            name = f"{self._prefix}{number}"
            blob = store.get(name)
            if blob is None:
                raise StateDamagedError(
                    f"state piece {name} is missing; restore the checkpoint or replay the log"
                )
            part = self._decode(name, blob)
            if part.size != rows:
                raise StateDamagedError(
                    f"state piece {name} has {part.size} rows, not {rows}; restore the checkpoint"
                )
            self._newest[number] = int(part[self._time].max())
            self._mergeable[number] = blob
            self._forget_before(index)
            yield part

    def add(self, store: PieceSink, rows: NDArray[np.void]) -> None:
        """Add rows; stored pieces must have been loaded."""
        assert self._newest.keys() >= {number for number, _ in self._pieces}, "not loaded"
        if not rows.size:
            return
        rows = self._condense(rows)
        number = self._next()
        while (
            self._pieces
            and self._pieces[-1][0] in self._mergeable
            and self._pieces[-1][1] < 2 * rows.size
            and self._pieces[-1][1] + rows.size <= MOST_ROWS
        ):
            before, _ = self._pieces.pop()
            del self._newest[before]
            name = f"{self._prefix}{before}"
            rows = self._condense(joined([self._decode(name, self._mergeable.pop(before)), rows]))
            store.remove(name)
        self._put(store, number, rows)

    def replace(self, store: PieceSink, rows: NDArray[np.void]) -> None:
        """Replace all rows."""
        number = self._next()
        for old, _ in self._pieces:
            store.remove(f"{self._prefix}{old}")
        self._pieces[:], self._newest, self._mergeable = [], {}, {}
        if rows.size:
            self._put(store, number, rows)

    def drop_before(self, store: PieceSink, time: int) -> None:
        """Remove the pieces whose rows are all older than a time; stored pieces must have been loaded."""
        kept = []
        for piece in self._pieces:
            if self._newest[piece[0]] < time:
                store.remove(f"{self._prefix}{piece[0]}")
                del self._newest[piece[0]]
                self._mergeable.pop(piece[0], None)
            else:
                kept.append(piece)
        self._pieces[:] = kept

    def _next(self) -> int:
        """Return the number of the next piece."""
        return self._pieces[-1][0] + 1 if self._pieces else 0

    def _put(self, store: PieceSink, number: int, rows: NDArray[np.void]) -> None:
        self._pieces.append([number, rows.size])
        self._newest[number] = int(rows[self._time].max())
        self._mergeable[number] = blob = encode({"rows": rows})
        self._forget_before(len(self._pieces) - 1)
        store.put(f"{self._prefix}{number}", blob)

    def _forget_before(self, index: int) -> None:
        """Forget the blob of the piece before `index` once both together are too large to be merged."""
        if index and self._pieces[index - 1][1] + self._pieces[index][1] > MOST_ROWS:
            self._mergeable.pop(self._pieces[index - 1][0], None)

    def _decode(self, name: str, blob: bytes) -> NDArray[np.void]:
        return records(decode(blob, name), "rows", self._dtype)
