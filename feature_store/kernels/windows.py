"""Kernels of the windowed features: exact, all windows in one walk back through the card's events.

Each event carries flags: last one at its merchant, last one in its country. So a walk from the newest event
counts distinct merchants and countries without a lookup: it counts the window's flagged events. A late
transaction is followed by events that its windows must not see, and these have taken the flags from earlier
events at the same merchant or in the same country. So a late transaction takes a slower walk, which looks up
each event's merchant and country.
"""

import math

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import COLUMN, WINDOWS
from feature_store.jit import njit
from feature_store.kernels.cards import Array
from feature_store.layout import (
    COUNTRIES,
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    CURRENCY_BITS,
    EMPTY,
    LAST_AT_MERCHANT,
    LAST_IN_COUNTRY,
    MERCHANT_MASK,
    SPIKE,
    UNITS_PER_CURRENCY,
    WHEN_SHIFT,
)

LENGTHS = np.array(list(WINDOWS.values()), dtype=np.int64)
N_WINDOWS = len(WINDOWS)
LONGEST = int(LENGTHS[-1])
HOUR_WINDOW = list(WINDOWS).index("1h")
DAY_WINDOW = list(WINDOWS).index("24h")
WEEK_WINDOW = list(WINDOWS).index("7d")
MONTH_WINDOW = list(WINDOWS).index("30d")

C_COUNT, C_SUM, C_MEAN, C_MAX, C_MERCHANTS, C_COUNTRIES = (
    COLUMN[f"{stem}_1m"] for stem in ("count", "sum", "mean", "max", "merchants", "countries")
)
"""Columns of the first window."""
PER_WINDOW = COLUMN["count_5m"] - COLUMN["count_1m"]
C_STD, C_RATIO_MEAN, C_Z_MONTH = COLUMN["std_30d"], COLUMN["ratio_mean_30d"], COLUMN["zscore_30d"]
C_SPIKES_HOUR, C_SPIKES_DAY = COLUMN["spikes_1h"], COLUMN["spikes_24h"]
C_SPIKES_WEEK, C_SPIKES_MONTH = COLUMN["spikes_7d"], COLUMN["spikes_30d"]
C_SPIKE_AGE = COLUMN["time_since_spike"]
C_NEW_MERCHANT, C_NEW_COUNTRY = COLUMN["new_merchant"], COLUMN["new_country"]

_MERCHANTS = np.uint64(MERCHANT_MASK)
MERCHANT_SLOTS = 1 << 10  # twice the events of the longest walk


def scratch() -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Allocate scratch memory of `apply`: merchants seen, last walk that saw each merchant and country."""
    return (
        np.zeros(MERCHANT_SLOTS, dtype=np.uint64),
        np.zeros(MERCHANT_SLOTS, dtype=np.int64),
        np.zeros(COUNTRIES + COUNTRY_MASK + 1, dtype=np.int64),
    )


@njit(cache=True, inline="always")
def _first_seen(merchant: np.uint64, walk: int, seen: NDArray[np.uint64], seen_in: NDArray[np.int64]) -> bool:
    """Return whether this walk sees a merchant for the first time, and record it as seen."""
    at = merchant & np.uint64(MERCHANT_SLOTS - 1)
    while seen_in[at] == walk:
        if seen[at] == merchant:
            return False
        at = (at + np.uint64(1)) & np.uint64(MERCHANT_SLOTS - 1)
    seen[at] = merchant
    seen_in[at] = walk
    return True


@njit(cache=True, inline="always")
def write_window(
    out: NDArray[np.float64],
    window: int,
    count: int,
    total: int,
    greatest: int,
    merchants: float,
    countries: int,
    spikes: int,
) -> None:
    """Set the features of one window from its aggregates; amounts in 1/10,000 currency units."""
    offset = PER_WINDOW * window
    out[offset + C_COUNT] = count
    out[offset + C_SUM] = total / UNITS_PER_CURRENCY
    out[offset + C_MEAN] = total / count / UNITS_PER_CURRENCY
    out[offset + C_MAX] = greatest / UNITS_PER_CURRENCY
    out[offset + C_MERCHANTS] = merchants
    out[offset + C_COUNTRIES] = countries
    if window == HOUR_WINDOW:
        out[C_SPIKES_HOUR] = spikes
    elif window == DAY_WINDOW:
        out[C_SPIKES_DAY] = spikes
    elif window == WEEK_WINDOW:
        out[C_SPIKES_WEEK] = spikes
    elif window == MONTH_WINDOW:
        out[C_SPIKES_MONTH] = spikes


@njit(cache=True)
def _squares(events: Array, first: int, last: int, mean: float) -> float:
    """Sum squared deviations with four accumulators: a single one would wait for each addition."""
    a = b = c = d = 0.0
    i = first
    while i + 3 <= last:
        da = (events[np.uint64(i)].money >> CURRENCY_BITS) - mean
        db = (events[np.uint64(i + 1)].money >> CURRENCY_BITS) - mean
        dc = (events[np.uint64(i + 2)].money >> CURRENCY_BITS) - mean
        dd = (events[np.uint64(i + 3)].money >> CURRENCY_BITS) - mean
        a += da * da
        b += db * db
        c += dc * dc
        d += dd * dd
        i += 4
    while i <= last:
        da = (events[np.uint64(i)].money >> CURRENCY_BITS) - mean
        a += da * da
        i += 1
    return (a + b) + (c + d)


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
) -> tuple[int, int, float]:
    """Compute all windows of a transaction that is not late, walking back from event `last` to `first`.

    Of the events in 30d, the newest at the transaction's merchant loses LAST_AT_MERCHANT, and the newest in
    its country loses LAST_IN_COUNTRY.

    Returns:
        Of the card's other transactions in 30d: count, sum of the amounts, sum of their squared deviations
        from their mean; amounts in 1/10,000 currency units.
    """
    total, greatest = units, units
    merchants, countries, spikes = 1, 1, 0
    at_merchant = in_country = spike = EMPTY  # index of the newest such event
    at = last
    for window in range(N_WINDOWS):
        start = (time - LENGTHS[window] + 1) << WHEN_SHIFT
        # branch-free body: no mispredictions
        while at >= first and events[np.uint64(at)].when >= start:
            event = events[np.uint64(at)]
            when = event.when
            amount = event.money >> CURRENCY_BITS
            total += amount
            greatest = max(greatest, amount)
            same = (event.merchant & _MERCHANTS) == merchant
            at_merchant = max(at_merchant, at if same else EMPTY)
            merchants += 0 if same else (when & LAST_AT_MERCHANT) // LAST_AT_MERCHANT
            same = ((when >> COUNTRY_SHIFT) & COUNTRY_MASK) == country
            in_country = max(in_country, at if same else EMPTY)
            countries += 0 if same else (when & LAST_IN_COUNTRY) // LAST_IN_COUNTRY
            spikes += when & SPIKE
            spike = max(spike, at if when & SPIKE else EMPTY)
            at -= 1
        write_window(out, window, last - at + 1, total, greatest, merchants, countries, spikes)
    out[C_NEW_MERCHANT] = 1.0 if at_merchant == EMPTY else 0.0
    out[C_NEW_COUNTRY] = 1.0 if in_country == EMPTY else 0.0
    out[C_SPIKE_AGE] = np.nan
    if spike != EMPTY:
        out[C_SPIKE_AGE] = (time - (events[spike].when >> WHEN_SHIFT)) / 1000
    if at_merchant != EMPTY:
        events[at_merchant].when &= ~LAST_AT_MERCHANT
    if in_country != EMPTY:
        events[in_country].when &= ~LAST_IN_COUNTRY
    others = last - at
    total -= units
    return others, total, _squares(events, at + 1, last, total / others if others else 0.0)


@njit(cache=True)
def walk_late(
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
    """Compute the windows of a late transaction, whose `last` is not the card's last event; clear no flags.

    Results as for `walk_windows`. `seen`, `seen_in`, `seen_country`: see `scratch`; `walk` marks this walk.
    """
    total, greatest = units, units
    _first_seen(merchant, walk, seen, seen_in)
    seen_country[country] = walk
    merchants, countries, spikes = 1, 1, 0
    merchant_is_new = country_is_new = True
    out[C_SPIKE_AGE] = np.nan
    at = last
    for window in range(N_WINDOWS):
        start = (time - LENGTHS[window] + 1) << WHEN_SHIFT
        while at >= first and events[np.uint64(at)].when >= start:
            event = events[np.uint64(at)]
            amount = event.money >> CURRENCY_BITS
            total += amount
            greatest = max(greatest, amount)
            other_merchant = event.merchant & _MERCHANTS
            if _first_seen(other_merchant, walk, seen, seen_in):
                merchants += 1
            elif other_merchant == merchant:
                merchant_is_new = False
            other_country = (event.when >> COUNTRY_SHIFT) & COUNTRY_MASK
            if seen_country[other_country] != walk:
                seen_country[other_country] = walk
                countries += 1
            elif other_country == country:
                country_is_new = False
            if event.when & SPIKE:
                spikes += 1
                if spikes == 1:
                    out[C_SPIKE_AGE] = (time - (event.when >> WHEN_SHIFT)) / 1000
            at -= 1
        write_window(out, window, last - at + 1, total, greatest, merchants, countries, spikes)
    out[C_NEW_MERCHANT] = 1.0 if merchant_is_new else 0.0
    out[C_NEW_COUNTRY] = 1.0 if country_is_new else 0.0
    others = last - at
    total -= units
    return others, total, _squares(events, at + 1, last, total / others if others else 0.0)


@njit(cache=True)
def late_flags(events: Array, first: int, at: int, end: int, merchant: np.uint64, country: int) -> int:
    """Return the flags of a late event to be inserted before event `at`.

    Clears the flags that the late event takes from earlier events.
    """
    flags = LAST_AT_MERCHANT | LAST_IN_COUNTRY
    for i in range(at, end):
        if (events[i].merchant & _MERCHANTS) == merchant:
            flags &= ~LAST_AT_MERCHANT
        if (events[i].when >> COUNTRY_SHIFT) & COUNTRY_MASK == country:
            flags &= ~LAST_IN_COUNTRY
    for i in range(first, at):
        # a newer event has already taken the flag of most of these; clearing it again changes nothing
        if (events[i].merchant & _MERCHANTS) == merchant:
            events[i].when &= ~LAST_AT_MERCHANT
        if (events[i].when >> COUNTRY_SHIFT) & COUNTRY_MASK == country:
            events[i].when &= ~LAST_IN_COUNTRY
    return flags


@njit(cache=True, inline="always")
def month_features(out: NDArray[np.float64], units: int, others: int, total: int, squares: float) -> None:
    """Set the features that compare with the card's other transactions in 30d; see `walk_windows`."""
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
