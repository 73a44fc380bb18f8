"""Kernels of the features of the transaction alone and of its card's statistics, newest events, profile."""

import math

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import CLIP_RATIO, COLUMN, DAY_MS, HOUR_MS, MEDIAN_OF, ROBUST_MEMORY, SPIKE_RATIO
from feature_store.jit import njit
from feature_store.kernels.cards import Array
from feature_store.kernels.countries import CENTROIDS
from feature_store.kernels.windows import LONGEST
from feature_store.layout import COUNTRY_MASK, COUNTRY_SHIFT, CURRENCY_BITS, WHEN_SHIFT

C_AMOUNT, C_TAIL = COLUMN["amount"], COLUMN["amount_tail"]
C_HOUR, C_NIGHT, C_WEEKEND = COLUMN["hour_of_day"], COLUMN["is_night"], COLUMN["is_weekend"]
C_LATENESS = COLUMN["lateness"]
C_GAP, C_COUNT_ALL, C_Z_ALL = COLUMN["time_since_previous"], COLUMN["count_all"], COLUMN["zscore_all"]
C_RATIO_ROBUST, C_RATIO_MEDIAN = COLUMN["ratio_robust"], COLUMN["ratio_median"]
C_SPEED = COLUMN["travel_speed"]
C_HAS_PROFILE, C_LIMIT_USE, C_AGE = COLUMN["has_profile"], COLUMN["limit_use_24h"], COLUMN["account_age"]
C_RISK, C_AWAY, C_SUM_DAY = COLUMN["risk_tier"], COLUMN["away_from_home"], COLUMN["sum_24h"]
UNKNOWN_COUNTRY = 25 * 26 + 25  # ZZ
MEDIAN_SLOTS = 16  # at least MEDIAN_OF, a multiple of a vector's lanes
GREATEST = np.iinfo(np.int64).max


@njit(cache=True)
def _lower_median(values: NDArray[np.int64], count: int) -> int:
    """Return the lower median of the first `count` values, by ranks: a sort would mispredict branches."""
    for i in range(count, MEDIAN_SLOTS):
        values[i] = GREATEST
    rank = (count - 1) // 2
    median = GREATEST
    # a fixed number of iterations without a branch: the compiler vectorises them
    for i in range(MEDIAN_SLOTS):
        value = values[i]
        up_to = 0
        for j in range(MEDIAN_SLOTS):
            up_to += values[j] <= value
        median = min(median, value if up_to > rank else GREATEST)
    return median


@njit(cache=True)
def _speed_kmh(a: int, b: int, gap_ms: int) -> float:
    """Compute the implied speed between two countries' centroids (haversine, earth radius 6371 km).

    The distance is rounded to whole metres: sines of different C libraries differ in their last bits.
    """
    if a == UNKNOWN_COUNTRY or b == UNKNOWN_COUNTRY:
        return np.nan
    if a == b:
        return 0.0
    phi_a, phi_b = math.radians(CENTROIDS[a, 0]), math.radians(CENTROIDS[b, 0])
    half_phi = (phi_b - phi_a) / 2
    half_lambda = math.radians(CENTROIDS[b, 1] - CENTROIDS[a, 1]) / 2
    h = math.sin(half_phi) ** 2 + math.cos(phi_a) * math.cos(phi_b) * math.sin(half_lambda) ** 2
    if np.isnan(h):  # a code that no country has
        return np.nan
    km = np.rint(2 * 6371.0 * math.asin(min(1.0, math.sqrt(h))) * 1000) / 1000
    return km / (max(gap_ms, 1000) / HOUR_MS)


@njit(cache=True, inline="always")
def transaction_features(out: NDArray[np.float64], amount: float, time: int, arrival: int) -> None:
    """Set the features of the transaction alone."""
    out[C_AMOUNT] = amount
    out[C_LATENESS] = (arrival - time) / 1000
    out[C_TAIL] = min(max(np.rint(amount), 150.0), 400.0)
    hour = time // HOUR_MS % 24
    out[C_HOUR] = hour
    out[C_NIGHT] = 1.0 if hour <= 6 else 0.0
    # 1970-01-01 was a Thursday
    out[C_WEEKEND] = 1.0 if (time // DAY_MS + 3) % 7 >= 5 else 0.0


@njit(cache=True, inline="always")
def running_features(out: NDArray[np.float64], card: Array, amount: float) -> bool:
    """Set the features from the running statistics; return whether the amount is a spike."""
    out[C_COUNT_ALL] = card.seen
    out[C_Z_ALL] = np.nan
    if card.seen >= 2 and card.m2 > 0.0:
        out[C_Z_ALL] = (amount - card.mean) / math.sqrt(card.m2 / card.seen)
    if card.robust_mean > 0.0:
        out[C_RATIO_ROBUST] = amount / card.robust_mean
        return amount / card.robust_mean > SPIKE_RATIO
    out[C_RATIO_ROBUST] = np.nan
    return False


@njit(cache=True, inline="always")
def update_running(card: Array, amount: float) -> None:
    """Update the running statistics of a card with an accepted amount (Welford 1962)."""
    card.seen += 1
    delta = amount - card.mean
    card.mean += delta / card.seen
    card.m2 += delta * (amount - card.mean)
    if card.robust_mean > 0.0:
        clipped = min(amount, CLIP_RATIO * card.robust_mean)
        card.robust_mean += (clipped - card.robust_mean) / min(card.seen, ROBUST_MEMORY)
    else:
        card.robust_mean = amount


@njit(cache=True, inline="always")
def profile_features(
    out: NDArray[np.float64], profiles: Array, version: int, time: int, country: int
) -> None:
    """Set the features of a profile version (negative: none); `out` must hold those of the windows."""
    if version < 0:
        out[C_HAS_PROFILE] = 0.0
        out[C_LIMIT_USE] = out[C_AGE] = out[C_RISK] = out[C_AWAY] = np.nan
        return
    profile = profiles[version]
    out[C_HAS_PROFILE] = 1.0
    out[C_LIMIT_USE] = out[C_SUM_DAY] / profile.credit_limit if profile.credit_limit > 0.0 else np.nan
    out[C_AGE] = time // DAY_MS - profile.opened_on
    out[C_RISK] = profile.risk_tier
    unknown = country == UNKNOWN_COUNTRY or profile.country == UNKNOWN_COUNTRY
    out[C_AWAY] = np.nan if unknown else (1.0 if country != profile.country else 0.0)


@njit(cache=True)
def near_features(
    out: NDArray[np.float64],
    events: Array,
    first: int,
    last: int,
    time: int,
    units: int,
    country: int,
    amounts: NDArray[np.int64],
) -> None:
    """Set the features that compare the transaction with the previous event and with the last few events."""
    out[C_GAP] = out[C_RATIO_MEDIAN] = out[C_SPEED] = np.nan
    count = 0
    most = min(MEDIAN_OF, last - first + 1)
    while count < most:
        event = events[np.uint64(last - count)]
        if (event.when >> WHEN_SHIFT) <= time - LONGEST:
            break
        amounts[count] = event.money >> CURRENCY_BITS
        count += 1
    if count == 0:
        return
    previous = events[last].when
    gap = time - (previous >> WHEN_SHIFT)
    out[C_GAP] = gap / 1000
    out[C_SPEED] = _speed_kmh((previous >> COUNTRY_SHIFT) & COUNTRY_MASK, country, gap)
    median = _lower_median(amounts, count)
    if median > 0:
        out[C_RATIO_MEDIAN] = units / median
