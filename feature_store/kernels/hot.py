"""Hot cards: bounded time and memory for cards with too many events to keep each one.

A card that gets more than MOST_EVENTS events within 37 days (30 plus the default allowed lateness) is hot
from then on, until it is forgotten.

1. Its newest events are still kept one by one, for features of single events (previous, median).
2. Its windows come from rings of buckets. A bucket's length is 1 / BUCKETS_PER_WINDOW of its window's;
   buckets are aligned to 1970-01-01. At event time t the window consists of the bucket of t and the
   BUCKETS_PER_WINDOW - 1 buckets before. So a count misses at most the events of one bucket at the window's
   old edge. If t is late, the count may include events, accepted earlier, whose event time is after t by up
   to one bucket. A ring has RING buckets; later events overwrite the oldest ones. If t is late by more
   than RING - BUCKETS_PER_WINDOW buckets, the count also misses the buckets of its window that are
   overwritten.
3. Distinct merchants are estimated by linear counting (Whang, Vander-Zanden, Taylor 1990) over 256 bits,
   countries are counted as set bits among 256. Of the spikes only the latest event time is kept: a late
   transaction before it has no `time_since_spike`. Counts by arrival: see `arrivals`.
4. Repetitions are recognised among the last accepted transactions: see `recent_ids`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import WINDOWS
from feature_store.jit import njit
from feature_store.kernels.arrivals import age, clear_rings, enter_arrival
from feature_store.kernels.cards import Array, Counters
from feature_store.kernels.recent_ids import clear, remember
from feature_store.kernels.windows import (
    C_NEW_COUNTRY,
    C_NEW_MERCHANT,
    C_SPIKE_AGE,
    MONTH_WINDOW,
    N_WINDOWS,
    write_window,
)
from feature_store.layout import (
    COUNTRY_MASK,
    COUNTRY_SHIFT,
    CURRENCY_BITS,
    EMPTY,
    FREE_HOT,
    HOT_CARDS,
    HOT_IDS,
    RING,
    SPIKE,
    UNITS_PER_CURRENCY,
    WHEN_SHIFT,
)

BUCKETS_PER_WINDOW = 60
WIDTHS = np.array([length // BUCKETS_PER_WINDOW for length in WINDOWS.values()], dtype=np.int64)
BUCKETS_PER_CARD = N_WINDOWS * RING
BITS = 256


@njit(cache=True, inline="always")
def _bit(bits: NDArray[np.uint64], number: int) -> bool:
    return (bits[number >> 6] >> np.uint64(number & 63)) & np.uint64(1) != 0


@njit(cache=True, inline="always")
def _set_bit(bits: NDArray[np.uint64], number: int) -> None:
    bits[number >> 6] |= np.uint64(1) << np.uint64(number & 63)


@njit(cache=True)
def _ones(bits: NDArray[np.uint64]) -> int:
    count = 0
    for word in bits:
        w = word
        while w != 0:
            w &= w - np.uint64(1)
            count += 1
    return count


@njit(cache=True)
def _distinct(bits: NDArray[np.uint64]) -> float:
    """Estimate the number of distinct values from the bits they set (linear counting)."""
    zeros = max(BITS - _ones(bits), 1)
    return np.rint(-BITS * math.log(zeros / BITS))


@njit(cache=True)
def add(hots: Array, buckets: Array, latest: Array, hot: int, event: Array, arrival: int) -> None:
    """Add an accepted event to a hot card's rings and to its recent transactions.

    With an `arrival` (ms) of -1 the event is added only to the windows by event time.
    """
    record = hots[hot]
    when, units, merchant = event.when, event.money >> CURRENCY_BITS, event.merchant
    if arrival >= 0:
        remember(latest, record, hot, event)
        enter_arrival(record, arrival)
    time = when >> WHEN_SHIFT
    spike = when & SPIKE
    if spike:
        record.last_spike = max(record.last_spike, time)
    amount = units / UNITS_PER_CURRENCY
    for window in range(N_WINDOWS):
        index = time // WIDTHS[window]
        bucket = buckets[(hot * N_WINDOWS + window) * RING + index % RING]
        if bucket.index > index:
            continue  # overwritten by a later bucket: the event is too late for this ring
        if bucket.index < index:
            bucket.index = index
            bucket.total = 0
            bucket.greatest = 0
            bucket.squares = 0.0
            bucket.count = 0
            bucket.spikes = 0
            bucket.merchants[:] = 0
            bucket.countries[:] = 0
        bucket.total += units
        bucket.greatest = max(bucket.greatest, units)
        bucket.squares += amount * amount
        bucket.count += 1
        bucket.spikes += spike
        _set_bit(bucket.merchants, np.int64(merchant & np.uint64(BITS - 1)))
        _set_bit(bucket.countries, ((when >> COUNTRY_SHIFT) & COUNTRY_MASK) % BITS)


@njit(cache=True)
def become_hot(
    card: Array,
    events: Array,
    hots: Array,
    buckets: Array,
    latest: Array,
    counters: Counters,
    known_from: int,
    arrival: int,
) -> bool:
    """Make a card hot: give it rings, filled with its events; False if the arrays must grow first.

    Events with an event time before `known_from` (ms) are added without id and arrival. `arrival` (ms) is
    that of the transaction which makes the card hot.
    """
    hot = counters[FREE_HOT]
    if hot != EMPTY:
        counters[FREE_HOT] = hots[hot].last_spike
    else:
        hot = counters[HOT_CARDS]
        if hot >= hots.size:
            return False
        counters[HOT_CARDS] += 1
    record = hots[hot]
    record.last_spike = -1
    record.ids = 0
    record.newer = 0
    clear_rings(record, arrival)
    clear(latest, hot * HOT_IDS, (hot + 1) * HOT_IDS)
    for i in range(hot * N_WINDOWS * RING, (hot + 1) * N_WINDOWS * RING):
        buckets[i].index = -1
    card.hot = hot
    for i in range(card.segment, card.segment + card.events):
        event = events[i]
        is_old = (event.when >> WHEN_SHIFT) < known_from
        add(hots, buckets, latest, hot, event, -1 if is_old else arrival - age(event, arrival))
    return True


@njit(cache=True)
def release_rings(card: Array, hots: Array, counters: Counters) -> None:
    """Release a hot card's rings."""
    hots[card.hot].last_spike = counters[FREE_HOT]
    counters[FREE_HOT] = card.hot
    card.hot = EMPTY


@njit(cache=True)
def ring_features(
    out: NDArray[np.float64],
    hots: Array,
    buckets: Array,
    hot: int,
    time: int,
    units: int,
    merchant: np.uint64,
    country: int,
) -> tuple[int, int, float]:
    """Compute the windows of a hot card's transaction, itself included, before it is added to the rings.

    Returns:
        Of the card's other transactions in 30d: count, sum of the amounts, sum of their squared deviations
        from their mean; amounts in 1/10,000 currency units.
    """
    merchants = np.zeros(BITS // 64, dtype=np.uint64)
    countries = np.zeros(BITS // 64, dtype=np.uint64)
    own = np.int64(merchant & np.uint64(BITS - 1))
    count, total, squares = 0, 0, 0.0
    for window in range(N_WINDOWS):
        count, total, squares, greatest, spikes = 0, 0, 0.0, 0, 0
        merchants[:] = 0
        countries[:] = 0
        newest = time // WIDTHS[window]
        base = (hot * N_WINDOWS + window) * RING
        for index in range(newest - BUCKETS_PER_WINDOW + 1, newest + 1):
            bucket = buckets[base + index % RING]
            if bucket.index != index:
                continue
            count += bucket.count
            total += bucket.total
            squares += bucket.squares
            greatest = max(greatest, bucket.greatest)
            spikes += bucket.spikes
            for word in range(BITS // 64):
                merchants[word] |= bucket.merchants[word]
                countries[word] |= bucket.countries[word]
        if window == MONTH_WINDOW:
            out[C_NEW_MERCHANT] = 0.0 if _bit(merchants, own) else 1.0
            out[C_NEW_COUNTRY] = 0.0 if _bit(countries, country % BITS) else 1.0
        _set_bit(merchants, own)
        _set_bit(countries, country % BITS)
        write_window(
            out, window, count + 1, total + units, max(greatest, units), _distinct(merchants),
            _ones(countries), spikes,
        )  # fmt: skip
    last = hots[hot].last_spike
    out[C_SPIKE_AGE] = np.nan
    if 0 <= last <= time and time - last < WIDTHS[MONTH_WINDOW] * BUCKETS_PER_WINDOW:
        out[C_SPIKE_AGE] = (time - last) / 1000
    if count == 0:
        return 0, 0, 0.0
    mean = total / count / UNITS_PER_CURRENCY
    deviations = squares - count * mean * mean
    if deviations < 1e-9 * squares:  # only rounding errors
        deviations = 0.0
    return count, total, deviations * UNITS_PER_CURRENCY * UNITS_PER_CURRENCY
