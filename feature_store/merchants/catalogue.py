"""The catalogue of merchant label features, for training files and for a job that keeps merchant facts.

They are not part of `feature_store.catalogue.FEATURES`: a job without merchant facts does not compute them,
and refuses a model that asks for them.

- Features are as of the arrival *a* of the transaction. Transactions are counted by arrival hour.
- A report takes effect MARGIN_MS after the end of the arrival hour in which it came: in that time key groups
  exchange their facts (`takes_effect`).
- With a label delay *D*, an hour *h* is *ripe* if it ended at *a* - *D* - MARGIN_MS or before. Then every
  report of a transaction of *h* that came within *D* has taken effect, if *D* is in whole hours. Transactions
  of *h* without a report of fraud in effect count as genuine. *M* is the first hour that is not ripe;
  *M* - 720 is the hour 30 days before it, *M* - 168 the hour 7 days before it.
- A fraud counts from the time when its report takes effect, whether or not its hour is ripe. Only frauds of
  arrival hours from *M* - 720 on count.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, HOUR_MS, IDENTITIES, NAMES, Feature, Key, names_of

WEEK_H, MONTH_H = 7 * 24, 30 * 24
"""Lengths of the windows, hours."""
MARGIN_MS = HOUR_MS
"""Time from the end of the arrival hour of a report until the report takes effect."""
NEVER = np.iinfo(np.int64).max
"""A time that is later than any other."""


def takes_effect(known_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute when reports that came at `known_at` take effect, ms; NEVER stays NEVER."""
    is_finite = known_at != NEVER
    hours = np.where(is_finite, known_at, 0) // HOUR_MS
    return np.where(is_finite, (hours + 1) * HOUR_MS + MARGIN_MS, NEVER)


_UNEXPLAINED = "reported frauds that were no spikes (ratio_robust) on their cards"


def _merchant(name: str, unit: str, meaning: str, days: int = 30) -> Feature:
    return Feature(f"merchant_{name}", Key.MERCHANT, unit, meaning, window_ms=days * DAY_MS)


MERCHANT_FEATURES: tuple[Feature, ...] = (
    _merchant("count_7d", "1", "Transactions of the merchant in the ripe hours from M - 168 on", 7),
    _merchant("count_30d", "1", "Transactions of the merchant in the ripe hours from M - 720 on"),
    _merchant(
        "risk_7d",
        "1",
        "Reported frauds of the hours of merchant_count_7d, divided by it; unknown where it is 0",
        7,
    ),
    _merchant(
        "risk_30d",
        "1",
        "Reported frauds of the hours of merchant_count_30d, divided by it; unknown where it is 0",
    ),
    _merchant("unexplained_7d", "1", f"Unexplained: {_UNEXPLAINED}, of hours from M - 168 on", 7),
    _merchant("unexplained_30d", "1", "Unexplained frauds of hours from M - 720 on"),
    _merchant(
        "last_label",
        "1",
        "1 if the newest transaction whose outcome is known was fraud, else 0; unknown without one. Of an "
        "hour with frauds and genuine transactions, the genuine ones count as the newer",
    ),
    _merchant("streak", "1", "Reported frauds since the newest genuine transaction of a ripe hour"),
    _merchant(
        "streak_age", "d", "a minus the arrival of the oldest fraud of the streak; unknown without a streak"
    ),
    _merchant(
        "last_unexplained_age",
        "d",
        "a minus the arrival of the newest unexplained fraud; unknown without one",
    ),
    _merchant(
        "first_unexplained_age",
        "d",
        "a minus the arrival of the oldest unexplained fraud; unknown without one",
    ),
    _merchant(
        "genuine_since",
        "1",
        "Genuine transactions of ripe hours after the hour of the newest unexplained fraud; unknown without "
        "one",
    ),
)
"""Every merchant label feature; the order is the column order."""

MERCHANT_NAMES: tuple[str, ...] = tuple(feature.name for feature in MERCHANT_FEATURES)
"""Feature names in column order."""
MERCHANT_COLUMN: dict[str, int] = {name: number for number, name in enumerate(MERCHANT_NAMES)}
"""Column number by feature name."""

ALL_NAMES: tuple[str, ...] = (*NAMES, *MERCHANT_NAMES)
"""Columns of a job that keeps merchant facts."""


def computed(*, merchants: bool) -> tuple[str, ...]:
    """Return the features that models may request (name:version), in column order.

    Args:
        merchants: whether to include the merchant label features.
    """
    return (*IDENTITIES, *(feature.identity for feature in MERCHANT_FEATURES)) if merchants else IDENTITIES


def are_merchants(missing: Sequence[str]) -> bool:
    """Return whether all of these features (name:version) are merchant label features."""
    return set(names_of(missing)) <= set(MERCHANT_NAMES)
