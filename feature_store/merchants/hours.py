"""Transaction counts by merchant and arrival hour, for lookups as of a time: sorted once, or growing.

Both kinds store rows (hour, count) in two arrays; each merchant has one segment of rows, ascending by hour.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feature_store.merchants.hour_kernels import (
    EMPTY,
    FIRST_ROWS,
    add_numbers,
    copy_segments,
    drop_before,
    fill_index,
    find_numbers,
    gather,
    insert,
    rows_before,
)

HOUR_COUNT = np.dtype([("merchant", "u8"), ("hour", "i8"), ("count", "i8")])
"""Number of transactions of a merchant (`facts.merchant_hash`) in one arrival hour (ms // HOUR_MS)."""

FIRST_MERCHANTS = 1024
MOVED_ROWS = FIRST_ROWS * FIRST_MERCHANTS
"""Least number of free rows after all segments have moved."""

Ranges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""For each of n merchants: index of its first row, and index after its last one; each of shape (n,)."""


class Hours(Protocol):
    """Transaction counts by merchant and arrival hour."""

    @property
    def hour(self) -> NDArray[np.int32]:
        """Arrival hours (ms // HOUR_MS), ascending within a merchant's rows."""

    @property
    def count(self) -> NDArray[np.int32]:
        """Number of the merchant's transactions in each hour."""

    def ranges(self, merchants: NDArray[np.uint64]) -> Ranges:
        """Return the rows of n merchants (hashes); an unknown merchant has an empty range."""


@dataclass(frozen=True)
class SortedHours:
    """Counts of a whole history."""

    merchants: NDArray[np.uint64]
    """Hashes of the m merchants, ascending, shape (m,)."""
    first: NDArray[np.int64]
    """First row of each merchant, and as the last element the number of all rows, shape (m + 1,)."""
    hour: NDArray[np.int32]
    count: NDArray[np.int32]

    @staticmethod
    def of(counts: NDArray[np.void]) -> "SortedHours":
        """Build from HOUR_COUNT, sorted by merchant and hour, with one record for each merchant and hour."""
        merchants, first = np.unique(counts["merchant"], return_index=True)
        return SortedHours(
            merchants,
            np.append(first, counts.size),
            counts["hour"].astype(np.int32),
            counts["count"].astype(np.int32),
        )

    def ranges(self, merchants: NDArray[np.uint64]) -> Ranges:
        """See `Hours.ranges`."""
        if not self.merchants.size:
            return np.zeros(merchants.size, dtype=np.int64), np.zeros(merchants.size, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.merchants, merchants), self.merchants.size - 1)
        start = self.first[at]
        return start, np.where(self.merchants[at] == merchants, self.first[at + 1], start)


class GrowingHours:
    """Counts that arrive in any order, mostly for the newest hour; hours that no lookup reaches are dropped.

    Merchants without other hours are forgotten whenever the arrays of merchants are full.

    Adding a count costs one look into the index and one into the merchant's segment, however many merchants
    there are.
    """

    def __init__(self) -> None:
        self._slots = np.full(2 * FIRST_MERCHANTS, EMPTY, dtype=np.int32)
        """Open-addressed hash table of merchant numbers; at most half full."""
        self._merchants = np.zeros(FIRST_MERCHANTS, dtype=np.uint64)
        self._start = np.zeros(FIRST_MERCHANTS, dtype=np.int64)
        self._size = np.zeros(FIRST_MERCHANTS, dtype=np.int32)
        self._capacity = np.zeros(FIRST_MERCHANTS, dtype=np.int32)
        self._known = 0
        """Number of merchants."""
        self.hour = np.zeros(FIRST_ROWS * FIRST_MERCHANTS, dtype=np.int32)
        self.count = np.zeros(FIRST_ROWS * FIRST_MERCHANTS, dtype=np.int32)
        self._end = 0
        """Number of rows that are, or were, part of a segment; the rows after them are free."""

    def ranges(self, merchants: NDArray[np.uint64]) -> Ranges:
        """See `Hours.ranges`."""
        numbers = np.empty(merchants.size, dtype=np.int32)
        find_numbers(self._slots, self._merchants, np.ascontiguousarray(merchants), numbers)
        start = self._start[numbers]
        return start, np.where(numbers == EMPTY, start, start + self._size[numbers])

    def add(self, counts: NDArray[np.void], oldest: int) -> None:
        """Add counts.

        Args:
            counts: HOUR_COUNT in any order; several of one merchant and hour add up.
            oldest: first hour that a lookup can reach.
        """
        self._reserve(counts.size, oldest)
        merchants, hour, count = (
            np.ascontiguousarray(counts[name]) for name in ("merchant", "hour", "count")
        )
        numbers = np.empty(merchants.size, dtype=np.int32)
        # a pass of its own, so that the cache misses of many rows overlap
        self._known = add_numbers(self._slots, self._merchants, self._known, merchants, numbers)
        done = 0
        while True:
            done, self._end = insert(
                self._start, self._size, self._capacity, self.hour, self.count, self._end,
                numbers, hour, count, done, oldest,
            )  # fmt: skip
            if done == merchants.size:
                return
            self._move()

    def before(self, until: int) -> NDArray[np.void]:
        """Return the counts (HOUR_COUNT) of the hours before `until`, sorted by merchant and hour."""
        start, size = self._start[: self._known], self._size[: self._known]
        found = np.empty(rows_before(start, size, self.hour, until), dtype=HOUR_COUNT)
        gather(start, size, self.hour, self.count, self._merchants, until, found)
        return found[np.argsort(found["merchant"], kind="stable")]

    def drop_before(self, until: int) -> None:
        """Remove the counts of the hours before `until`."""
        drop_before(self._start[: self._known], self._size, self.hour, self.count, until)

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes, without the rows that were never used."""
        per_merchant = (self._merchants, self._start, self._size, self._capacity)
        rows = self._end * (self.hour.itemsize + self.count.itemsize)
        return self._slots.nbytes + sum(array.nbytes for array in per_merchant) + rows

    def _reserve(self, new: int, oldest: int) -> None:
        """Make room for this number of new merchants: forget those without an hour from `oldest` on."""
        size, known = self._merchants.size, self._known
        if known + new <= size:
            return
        kept = self._size[:known] > 0
        last = self._start[:known][kept] + self._size[:known][kept] - 1
        kept[kept] = self.hour[last] >= oldest
        self._known = int(np.count_nonzero(kept))
        if (self._known + new) * 4 > size * 3:  # else many merchants come before the arrays are full again
            size = max(self._known + new, 2 * size)
        for name in ("_merchants", "_start", "_size", "_capacity"):
            old = getattr(self, name)
            grown = np.zeros(size, dtype=old.dtype)
            grown[: self._known] = old[:known][kept]
            setattr(self, name, grown)
        self._slots = np.full(1 << (2 * size - 1).bit_length(), EMPTY, dtype=np.int32)
        fill_index(self._slots, self._merchants, self._known)

    def _move(self) -> None:
        """Move all segments to new arrays, without the rows that growing segments have left."""
        known = self._known
        capacity = self._size[:known] + np.maximum(FIRST_ROWS, self._size[:known] // 4)
        rows = int(capacity.sum(dtype=np.int64))
        # untouched rows take no memory
        hour, count = (np.zeros(2 * rows + MOVED_ROWS, dtype=np.int32) for _ in range(2))
        copy_segments(self._start[:known], self._size[:known], capacity, self.hour, self.count, hour, count)
        self._capacity[:known] = capacity
        self.hour, self.count, self._end = hour, count, rows
