"""Kernels of the transaction counts by merchant and arrival hour; see `hours.GrowingHours`.

Arrays of rows: `hour` and `count`. Arrays by merchant number: `known` (hash); `start`, `size` and `capacity`
of the merchant's segment of rows. `slots` is an open-addressed hash table of merchant numbers.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.kernels.cards import Array

EMPTY = -1
"""A free slot; the number of an unknown merchant."""
FIRST_ROWS = 4
"""Rows of a merchant's first segment. If a segment is full and `insert` cannot drop a quarter of its rows,
they move to a segment of twice the size."""


@njit(cache=True, inline="always")
def slot_of(slots: NDArray[np.int32], known: NDArray[np.uint64], merchant: np.uint64) -> np.int64:
    """Return the slot of a merchant, or the free slot for it."""
    mask = np.uint64(slots.size - 1)
    at = merchant & mask
    while slots[at] != EMPTY and known[slots[at]] != merchant:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@njit(cache=True)
def find_numbers(
    slots: NDArray[np.int32],
    known: NDArray[np.uint64],
    merchants: NDArray[np.uint64],
    numbers: NDArray[np.int32],
) -> None:
    """Look up the number of each of `merchants`; EMPTY if it is unknown."""
    for row in range(merchants.size):
        numbers[row] = slots[slot_of(slots, known, merchants[row])]


@njit(cache=True)
def add_numbers(
    slots: NDArray[np.int32],
    known: NDArray[np.uint64],
    count: int,
    merchants: NDArray[np.uint64],
    numbers: NDArray[np.int32],
) -> int:
    """Look up or add each of `merchants`; return how many merchants are then known."""
    for row in range(merchants.size):
        slot = slot_of(slots, known, merchants[row])
        if slots[slot] == EMPTY:
            slots[slot] = count
            known[count] = merchants[row]
            count += 1
        numbers[row] = slots[slot]
    return count


@njit(cache=True)
def fill_index(slots: NDArray[np.int32], known: NDArray[np.uint64], count: int) -> None:
    """Enter the first `count` merchants into an empty index."""
    for number in range(count):
        slots[slot_of(slots, known, known[number])] = number


@njit(cache=True)
def reachable(hour: NDArray[np.int32], first: int, end: int, oldest: int) -> int:
    """Return the index of a segment's first hour that is not before `oldest`; `end` if there is none."""
    while first < end and hour[first] < oldest:
        first += 1
    return first


@njit(cache=True)
def copy_rows(hour: NDArray[np.int32], count: NDArray[np.int32], first: int, end: int, to: int) -> None:
    """Copy the rows first..end - 1 to `to`, which is before the first or behind the last."""
    for i in range(end - first):
        hour[to + i] = hour[first + i]
        count[to + i] = count[first + i]


@njit(cache=True)
def insert(
    start: NDArray[np.int64],
    size: NDArray[np.int32],
    capacity: NDArray[np.int32],
    hour: NDArray[np.int32],
    count: NDArray[np.int32],
    end: int,
    numbers: NDArray[np.int32],
    hours: NDArray[np.int64],
    counts: NDArray[np.int64],
    row: int,
    oldest: int,
) -> tuple[int, int]:
    """Insert the counts from index `row` on, until a segment needs more rows than the arrays have left.

    Counts of hours before `oldest` are skipped. `end` is the first row after all segments.

    Returns:
        Index of the first count that was not inserted, and the new `end`.
    """
    while row < numbers.size:
        number, new = numbers[row], hours[row]
        first, rows = start[number], size[number]
        if new < oldest:
            row += 1
            continue
        if rows == capacity[number]:
            kept = reachable(hour, first, first + rows, oldest)
            # only if at least a quarter of the rows is freed, so that later counts repay the copying
            if rows > 0 and (kept - first) * 4 >= rows:
                copy_rows(hour, count, kept, first + rows, first)
                rows = first + rows - kept
            else:
                larger = max(FIRST_ROWS, 2 * rows)
                if end + larger > hour.size:
                    return row, end
                copy_rows(hour, count, first, first + rows, end)
                first = start[number] = end
                capacity[number] = larger
                end += larger
        at = first + rows
        while at > first and hour[at - 1] > new:
            at -= 1
        if at > first and hour[at - 1] == new:
            count[at - 1] += counts[row]
        else:
            for i in range(first + rows, at, -1):
                hour[i] = hour[i - 1]
                count[i] = count[i - 1]
            hour[at] = new
            count[at] = counts[row]
            rows += 1
        size[number] = rows
        row += 1
    return row, end


@njit(cache=True)
def rows_before(
    start: NDArray[np.int64], size: NDArray[np.int32], hour: NDArray[np.int32], until: int
) -> int:
    """Count the rows of the hours before `until`."""
    rows = 0
    for number in range(start.size):
        first = start[number]
        rows += reachable(hour, first, first + size[number], until) - first
    return rows


@njit(cache=True)
def gather(
    start: NDArray[np.int64],
    size: NDArray[np.int32],
    hour: NDArray[np.int32],
    count: NDArray[np.int32],
    known: NDArray[np.uint64],
    until: int,
    found: Array,
) -> None:
    """Copy the rows of the hours before `until` to `found` (HOUR_COUNT), by merchant number and hour."""
    row = 0
    for number in range(start.size):
        first = start[number]
        for at in range(first, reachable(hour, first, first + size[number], until)):
            found[row].merchant = known[number]
            found[row].hour = hour[at]
            found[row].count = count[at]
            row += 1


@njit(cache=True)
def drop_before(
    start: NDArray[np.int64],
    size: NDArray[np.int32],
    hour: NDArray[np.int32],
    count: NDArray[np.int32],
    until: int,
) -> None:
    """Remove the rows of the hours before `until`."""
    for number in range(start.size):
        first, end = start[number], start[number] + size[number]
        kept = reachable(hour, first, end, until)
        if kept > first:
            copy_rows(hour, count, kept, end, first)
            size[number] = end - kept


@njit(cache=True)
def copy_segments(
    start: NDArray[np.int64],
    size: NDArray[np.int32],
    capacity: NDArray[np.int32],
    hour: NDArray[np.int32],
    count: NDArray[np.int32],
    new_hour: NDArray[np.int32],
    new_count: NDArray[np.int32],
) -> None:
    """Copy the segments into new arrays, one directly after another, and update `start`."""
    end = 0
    for number in range(start.size):
        first = start[number]
        for i in range(size[number]):
            new_hour[end + i] = hour[first + i]
            new_count[end + i] = count[first + i]
        start[number] = end
        end += capacity[number]
