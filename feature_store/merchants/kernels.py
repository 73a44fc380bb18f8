"""Kernel of the merchant label features: as-of lookups in sorted facts, and walks back over the frauds."""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, HOUR_MS
from feature_store.jit import njit
from feature_store.kernels.cards import Array
from feature_store.merchants.catalogue import MERCHANT_COLUMN, MONTH_H, WEEK_H

C_COUNT_7D, C_COUNT_30D = MERCHANT_COLUMN["merchant_count_7d"], MERCHANT_COLUMN["merchant_count_30d"]
C_RISK_7D, C_RISK_30D = MERCHANT_COLUMN["merchant_risk_7d"], MERCHANT_COLUMN["merchant_risk_30d"]
C_UNEXPLAINED_7D = MERCHANT_COLUMN["merchant_unexplained_7d"]
C_UNEXPLAINED_30D = MERCHANT_COLUMN["merchant_unexplained_30d"]
C_LAST_LABEL = MERCHANT_COLUMN["merchant_last_label"]
C_STREAK, C_STREAK_AGE = MERCHANT_COLUMN["merchant_streak"], MERCHANT_COLUMN["merchant_streak_age"]
C_LAST_AGE = MERCHANT_COLUMN["merchant_last_unexplained_age"]
C_FIRST_AGE = MERCHANT_COLUMN["merchant_first_unexplained_age"]
C_GENUINE_SINCE = MERCHANT_COLUMN["merchant_genuine_since"]


@njit(cache=True, inline="always")
def _is_in_effect(fraud: Array, arrival: int) -> bool:
    """Return whether a fraud's report is in effect at an arrival (ms)."""
    return fraud.known_from <= arrival < fraud.known_until


@njit(cache=True)
def _first_hour_from(hours: NDArray[np.int32], start: int, end: int, hour: int) -> int:
    """Return the first index in start..end - 1 whose hour is `hour` or later; `end` if there is none."""
    while start < end:
        middle = (start + end) // 2
        if hours[middle] < hour:
            start = middle + 1
        else:
            end = middle
    return start


@njit(cache=True, inline="always")
def _between(count: NDArray[np.int32], start: int, end: int) -> int:
    """Count the transactions of the hours with indices start..end - 1: at most MONTH_H hours."""
    total = 0
    for at in range(start, end):
        total += count[at]
    return total


@njit(cache=True)
def _newest_genuine(
    hour: NDArray[np.int32],
    count: NDArray[np.int32],
    start: int,
    end: int,
    frauds: Array,
    first: int,
    last: int,
    arrival: int,
) -> int:
    """Return the newest ripe hour (see `catalogue`) with a genuine transaction; -1 if there is none.

    Args:
        hour: `Hours.hour`.
        count: `Hours.count`.
        start: index of the first ripe hour to look at.
        end: index after the last one.
        frauds: `Facts.frauds`.
        first: index of the merchant's first fraud to look at.
        last: index after the last one.
        arrival: ms; only frauds in effect at this time count.
    """
    at = last - 1
    for h in range(end - 1, start - 1, -1):
        while at >= first and frauds[at].arrival // HOUR_MS > hour[h]:
            at -= 1
        genuine = count[h]
        while at >= first and frauds[at].arrival // HOUR_MS == hour[h]:
            genuine -= _is_in_effect(frauds[at], arrival)
            at -= 1
        if genuine > 0:
            return hour[h]
    return -1


@njit(cache=True, nogil=True)
def merchant_features(
    hour: NDArray[np.int32],
    count: NDArray[np.int32],
    first_hour: NDArray[np.int64],
    end_hour: NDArray[np.int64],
    frauds: Array,
    first_fraud: NDArray[np.int64],
    end_fraud: NDArray[np.int64],
    arrivals: NDArray[np.int64],
    ripe_after_ms: int,
    out: NDArray[np.float64],
) -> None:
    """Compute the features of n transactions, each as of its arrival; later facts are ignored.

    Args:
        hour: `Hours.hour`.
        count: `Hours.count`.
        first_hour: index of the first hour of each transaction's merchant, shape (n,).
        end_hour: index after its last hour; `first_hour` for a merchant without hours.
        frauds: `Facts.frauds`.
        first_fraud: index of the first fraud of each transaction's merchant, shape (n,).
        end_fraud: index after its last fraud.
        arrivals: ms, in any order, shape (n,).
        ripe_after_ms: time from the end of an hour until it is ripe (label delay + MARGIN_MS).
        out: receives the features, shape (n, len(MERCHANT_FEATURES)).
    """
    for row in range(arrivals.size):
        arrival = arrivals[row]
        unripe = (arrival - ripe_after_ms) // HOUR_MS
        f = out[row]
        f[:] = np.nan
        f[C_COUNT_7D] = f[C_COUNT_30D] = f[C_UNEXPLAINED_7D] = f[C_UNEXPLAINED_30D] = f[C_STREAK] = 0.0
        # 1. counts of the ripe hours
        start, end = first_hour[row], end_hour[row]
        end = _first_hour_from(hour, start, end, unripe)
        month = _first_hour_from(hour, start, end, unripe - MONTH_H)
        week = _first_hour_from(hour, month, end, unripe - WEEK_H)
        in_week = _between(count, week, end)
        in_month = in_week + _between(count, month, week)
        f[C_COUNT_30D], f[C_COUNT_7D] = in_month, in_week
        # 2. frauds from hour `unripe - MONTH_H` up to the arrival, newest first
        first, last = first_fraud[row], end_fraud[row]
        while last > first and frauds[last - 1].arrival > arrival:
            last -= 1
        while first < last and frauds[first].arrival // HOUR_MS < unripe - MONTH_H:
            first += 1
        newest_genuine = _newest_genuine(hour, count, month, end, frauds, first, last, arrival)
        ripe_month = ripe_week = unexplained_month = unexplained_week = streak = 0
        since = -1
        for at in range(last - 1, first - 1, -1):
            fraud = frauds[at]
            if not _is_in_effect(fraud, arrival):
                continue
            in_hour = fraud.arrival // HOUR_MS
            age = (arrival - fraud.arrival) / DAY_MS
            in_last_week = in_hour >= unripe - WEEK_H
            if in_hour < unripe:
                ripe_month += 1
                ripe_week += in_last_week
            if in_hour > newest_genuine:
                streak += 1
                f[C_STREAK_AGE] = age
            if not fraud.spike:
                if unexplained_month == 0:
                    f[C_LAST_AGE] = age
                    since = in_hour
                unexplained_month += 1
                unexplained_week += in_last_week
                f[C_FIRST_AGE] = age
        if in_month > 0:
            f[C_RISK_30D] = ripe_month / in_month
        if in_week > 0:
            f[C_RISK_7D] = ripe_week / in_week
        f[C_UNEXPLAINED_30D], f[C_UNEXPLAINED_7D] = unexplained_month, unexplained_week
        f[C_STREAK] = streak
        if streak > 0:
            f[C_LAST_LABEL] = 1.0
        elif newest_genuine >= 0:
            f[C_LAST_LABEL] = 0.0
        # 3. genuine transactions of the ripe hours after the hour of the newest unexplained fraud
        if since >= 0:
            after = _first_hour_from(hour, month, end, since + 1)
            genuine = _between(count, after, end)
            for at in range(last - 1, first - 1, -1):
                in_hour = frauds[at].arrival // HOUR_MS
                if in_hour <= since:
                    break
                if in_hour < unripe and _is_in_effect(frauds[at], arrival):
                    genuine -= 1
            f[C_GENUINE_SINCE] = genuine
