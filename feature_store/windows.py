"""Kernels of the windows: all of a transaction's, exact, in one walk back through its card's events."""

import math

import numpy as np
from numpy.typing import NDArray

from feature_store.cards import Array
from feature_store.catalogue import COLUMN, WINDOWS
from feature_store.jit import njit
from feature_store.layout import (
    COUNTRIES,
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    SPIKE,
    UNITS_PER_CURRENCY,
    WHEN_SHIFT,
)

LENGTHS = np.array(list(WINDOWS.values()), dtype=np.int64)
N_WINDOWS = len(WINDOWS)
LONGEST = int(LENGTHS[-1])
DAY_WINDOW = list(WINDOWS).index("24h")
WEEK_WINDOW = list(WINDOWS).index("7d")
MONTH_WINDOW = list(WINDOWS).index("30d")

FIRST_WINDOWED = COLUMN["count_1m"]
PER_WINDOW = 6
C_STD, C_RATIO_MEAN, C_Z_MONTH = COLUMN["std_30d"], COLUMN["ratio_mean_30d"], COLUMN["zscore_30d"]
C_SPIKES_DAY, C_SPIKES_WEEK = COLUMN["spikes_24h"], COLUMN["spikes_7d"]
C_SPIKES_MONTH, C_SPIKE_AGE = COLUMN["spikes_30d"], COLUMN["time_since_spike"]
C_NEW_MERCHANT, C_NEW_COUNTRY = COLUMN["new_merchant"], COLUMN["new_country"]

MERCHANT_SLOTS = 1 << 10  # twice the events that a walk can meet


def scratch() -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Working memory of `apply`: merchants seen in this walk, the walk that saw them, the same by country."""
    return (
        np.zeros(MERCHANT_SLOTS, dtype=np.uint64),
        np.zeros(MERCHANT_SLOTS, dtype=np.int64),
        np.zeros(COUNTRIES + COUNTRY_MASK + 1, dtype=np.int64),
    )


@njit(cache=True, inline="always")
def _first_seen(merchant: np.uint64, walk: int, seen: NDArray[np.uint64], seen_in: NDArray[np.int64]) -> bool:
    """Whether this walk meets a merchant for the first time; remembers it."""
    at = merchant & np.uint64(MERCHANT_SLOTS - 1)
    while seen_in[at] == walk:
        if seen[at] == merchant:
            return False
        at = (at + np.uint64(1)) & np.uint64(MERCHANT_SLOTS - 1)
    seen[at] = merchant
    seen_in[at] = walk
    return True


@njit(cache=True)
def walk_windows(
    out: NDArray[np.float64],
    events: Array,
    first: int,
    last: int,
    time: int,
    units: int,
    merchant: np.uint64,
    country: int,
    walk: int,
    seen: NDArray[np.uint64],
    seen_in: NDArray[np.int64],
    seen_country: NDArray[np.int64],
) -> tuple[int, int, float]:
    """All windows of one transaction in one walk back from event `last` to event `first`.

    Returns:
        Of the others in 30d: count, sum in units, sum of squared deviations from their mean in units.
    """
    count, total, greatest = 1, units, units
    _first_seen(merchant, walk, seen, seen_in)
    seen_country[country] = walk
    merchants, countries, spikes = 1, 1, 0
    merchant_is_new = country_is_new = True
    out[C_SPIKE_AGE] = np.nan
    window = 0
    at = last
    while True:
        done = at < first
        when = np.int64(0) if done else events[np.uint64(at)].when
        # close every window that this event is too old for
        while window < N_WINDOWS and (done or (when >> WHEN_SHIFT) <= time - LENGTHS[window]):
            column = FIRST_WINDOWED + PER_WINDOW * window
            out[column] = count
            out[column + 1] = total / UNITS_PER_CURRENCY
            out[column + 2] = total / count / UNITS_PER_CURRENCY
            out[column + 3] = greatest / UNITS_PER_CURRENCY
            out[column + 4] = merchants
            out[column + 5] = countries
            if window == DAY_WINDOW:
                out[C_SPIKES_DAY] = spikes
            elif window == WEEK_WINDOW:
                out[C_SPIKES_WEEK] = spikes
            window += 1
        if window == N_WINDOWS:
            break
        event = events[np.uint64(at)]
        count += 1
        total += event.amount
        greatest = max(greatest, event.amount)
        if _first_seen(event.merchant, walk, seen, seen_in):
            merchants += 1
        elif event.merchant == merchant:
            merchant_is_new = False
        land = (when >> COUNTRY_SHIFT) & COUNTRY_MASK
        if seen_country[land] != walk:
            seen_country[land] = walk
            countries += 1
        elif land == country:
            country_is_new = False
        if when & SPIKE:
            spikes += 1
            if spikes == 1:
                out[C_SPIKE_AGE] = (time - (when >> WHEN_SHIFT)) / 1000
        at -= 1
    out[C_SPIKES_MONTH] = spikes
    out[C_NEW_MERCHANT] = 1.0 if merchant_is_new else 0.0
    out[C_NEW_COUNTRY] = 1.0 if country_is_new else 0.0
    others = count - 1
    squares = 0.0
    if others > 0:
        mean = (total - units) / others
        for i in range(at + 1, last + 1):
            deviation = events[np.uint64(i)].amount - mean
            squares += deviation * deviation
    return others, total - units, squares


@njit(cache=True, inline="always")
def month_features(out: NDArray[np.float64], units: int, others: int, total: int, squares: float) -> None:
    """Features against the card's other transactions in 30d, all arguments in units."""
    out[C_STD] = out[C_RATIO_MEAN] = out[C_Z_MONTH] = np.nan
    if others == 0:
        return
    mean = total / others
    std = math.sqrt(squares / others)
    out[C_STD] = std / UNITS_PER_CURRENCY
    if mean > 0.0:
        out[C_RATIO_MEAN] = units / mean
    if others >= 2 and std > 0.0:
        out[C_Z_MONTH] = (units - mean) / std
