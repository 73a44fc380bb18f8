"""The catalogue of merchant label features: in files, and by a streaming job that keeps merchant facts.

They are no part of `feature_store.catalogue.FEATURES`: a job without merchant facts does not compute them,
and refuses a model that asks for them.

Time is the arrival *a* of the transaction that asks; the clock of counts is the arrival hour. What becomes
known takes effect MARGIN_MS after the end of the arrival hour in which it was reported: so much time have
key groups to tell each other (`takes_effect`). With a label delay *D*, an hour *h* is *ripe* if it ended at
*a* - *D* - MARGIN_MS or before, when all that was reported of it within *D* has taken effect: a transaction
of a ripe hour that nobody reported is taken for genuine. *M* is the first hour that is not ripe. A fraud
counts from when its report takes effect, ripe or not, and only those of arrival hours from *M* - 720 on:
nothing here looks back further.
"""

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, HOUR_MS, IDENTITIES, NAMES, Feature, Key

WEEK_H, MONTH_H = 7 * 24, 30 * 24
"""Lengths of the windows, hours."""
MARGIN_MS = HOUR_MS
"""Between the end of the hour in which something becomes known and its effect."""
NEVER = np.iinfo(np.int64).max
"""As a time: later than any."""


def takes_effect(known_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """When what became known takes effect, ms; NEVER of what never does."""
    is_known = known_at != NEVER
    hours = np.where(is_known, known_at, 0) // HOUR_MS
    return np.where(is_known, (hours + 1) * HOUR_MS + MARGIN_MS, NEVER)


_UNEXPLAINED = "reported frauds that were no spikes (ratio_robust) on their cards"


def _merchant(name: str, unit: str, meaning: str, days: int = 30) -> Feature:
    return Feature(f"merchant_{name}", Key.MERCHANT, unit, meaning, window_ms=days * DAY_MS)


MERCHANT_FEATURES: tuple[Feature, ...] = (
    _merchant("count_7d", "1", "Transactions of the merchant in the ripe hours from M - 168 on", 7),
    _merchant("count_30d", "1", "Transactions of the merchant in the ripe hours from M - 720 on"),
    _merchant(
        "risk_7d", "1", "Reported frauds of the same hours over merchant_count_7d; unknown where that is 0", 7
    ),
    _merchant(
        "risk_30d",
        "1",
        "Reported frauds of the same hours over merchant_count_30d; unknown where that is 0",
    ),
    _merchant("unexplained_7d", "1", f"Unexplained: {_UNEXPLAINED}, of hours from M - 168 on", 7),
    _merchant("unexplained_30d", "1", "Unexplained frauds of hours from M - 720 on"),
    _merchant(
        "last_label",
        "1",
        "1 if the newest transaction whose outcome is known was fraud, else 0; unknown without one. Of an "
        "hour with both, the genuine ones count as the newer",
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
    """Features that models may ask for, name:version, in column order; with merchant facts more."""
    return (*IDENTITIES, *(feature.identity for feature in MERCHANT_FEATURES)) if merchants else IDENTITIES
