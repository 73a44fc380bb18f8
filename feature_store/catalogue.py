"""The feature catalogue: every feature except merchant label features, defined once, as data.

`FEATURES` is the source of the kernel's output columns, the training set's columns, the model's signature,
the documentation page and the identities (name:version) that a model asks for. The column number of a feature
is its position here. A new feature needs one entry here, a few lines in `kernels.arrivals`,
`kernels.card_features` or `kernels.windows`, a sentence in `models.sentences` and a definition in the
oracle.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
LEAST_TIME_MS = 100_000_000_000
"""Earliest plausible time, 3 March 1973 in ms. The same number of seconds is in the year 5138, so times in
seconds are below it."""

WINDOWS: dict[str, int] = {
    "1m": MINUTE_MS,
    "5m": 5 * MINUTE_MS,
    "1h": HOUR_MS,
    "24h": DAY_MS,
    "7d": 7 * DAY_MS,
    "30d": 30 * DAY_MS,
}
"""Name -> length in ms, shortest first. A window at event time t holds (t - length, t]."""

ARRIVAL_WINDOWS: dict[str, int] = {name: WINDOWS[name] for name in ("1m", "5m", "1h")}
"""Name -> length in ms of the windows by arrival, shortest first."""

FORGET_AFTER_MS = 90 * DAY_MS
"""A card without an accepted transaction for longer than this (by arrival) starts afresh."""
STRANGER_MARGIN_MS = DAY_MS
"""A card with one transaction and no profile starts afresh after the allowed lateness plus this margin. A
repetition of its transaction is too late by then, even if the transaction was dated ahead of its arrival."""
MEDIAN_OF = 15
"""Number of previous amounts that the median is taken over."""
SPIKE_RATIO = 2.5
"""An amount above this many times the card's robust mean (defined at `ratio_robust`) is a spike."""
CLIP_RATIO = 3.0
"""When the robust mean is updated, a greater amount counts as this many times the robust mean."""
ROBUST_MEMORY = 64
"""Memory of the robust mean: each new amount weighs at least 1 / ROBUST_MEMORY."""


class Key(StrEnum):
    """The entity that a feature describes."""

    TRANSACTION = "transaction"
    CARD = "card"
    PROFILE = "profile"
    MERCHANT = "merchant"


@dataclass(frozen=True)
class Feature:
    """One column of the model's input; float64, NaN where unknown."""

    name: str
    """Column name, unique."""
    key: Key
    """The entity that it describes."""
    unit: str
    """Unit of the value; '1' for a plain number."""
    meaning: str
    """Exact definition in one sentence."""
    window_ms: int | None = None
    """Length of its window, ms; None without a window."""
    version: int = 1
    """Raised whenever the meaning changes."""

    @property
    def identity(self) -> str:
        """name:version, the key by which a model requests it."""
        return f"{self.name}:{self.version}"


def _windowed() -> list[Feature]:
    entries = []
    for name, length in WINDOWS.items():
        w = f"(t - {name}, t]"
        for stem, unit, meaning in (
            ("count", "1", f"Transactions of the card in {w}, this one included"),
            ("sum", "currency", f"Sum of their amounts in {w}"),
            ("mean", "currency", f"Mean of their amounts in {w}"),
            ("max", "currency", f"Greatest of their amounts in {w}"),
            ("merchants", "1", f"Distinct merchants among them in {w}"),
            ("countries", "1", f"Distinct countries among them in {w}"),
        ):
            entries.append(Feature(f"{stem}_{name}", Key.CARD, unit, meaning, window_ms=length))
    return entries


_BEFORE_30D = "the card's other transactions in (t - 30d, t]"

FEATURES: tuple[Feature, ...] = (
    Feature("amount", Key.TRANSACTION, "currency", "Amount of the transaction"),
    Feature(
        "amount_tail",
        Key.TRANSACTION,
        "currency",
        "Amount rounded half to even to a whole number, clipped to 150..400: "
        "histogram-binned trees can cut between any two of these 251 values",
    ),
    Feature("hour_of_day", Key.TRANSACTION, "h", "Hour of t in UTC, 0..23"),
    Feature("is_night", Key.TRANSACTION, "1", "1 from 00:00 to 06:59 UTC, else 0"),
    Feature("is_weekend", Key.TRANSACTION, "1", "1 on Saturday and Sunday (UTC), else 0"),
    Feature(
        "lateness",
        Key.TRANSACTION,
        "s",
        "Arrival (Kafka's timestamp) minus t; below 0 only where the sender's clock is ahead, by the allowed "
        "skew at most",
    ),
    *_windowed(),
    *(
        Feature(
            f"arrivals_{name}",
            Key.CARD,
            "1",
            f"Transactions of the card that arrived in (a - {name}, a], whatever their event times, this one "
            "included; a is the card's greatest arrival up to this transaction",
            window_ms=length,
        )
        for name, length in ARRIVAL_WINDOWS.items()
    ),
    Feature(
        "time_since_previous",
        Key.CARD,
        "s",
        "t minus the event time of the card's previous transaction (greatest event time <= t, within 30d)",
    ),
    Feature("count_all", Key.CARD, "1", "Transactions of the card accepted before this one"),
    Feature(
        "zscore_all",
        Key.CARD,
        "1",
        "(amount - m) / s, with m and s the mean and population standard deviation of all amounts accepted "
        "before; unknown below two amounts or where s is 0",
    ),
    Feature(
        "std_30d",
        Key.CARD,
        "currency",
        f"Population standard deviation of the amounts of {_BEFORE_30D}; unknown where there is none",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "ratio_mean_30d",
        Key.CARD,
        "1",
        f"Amount divided by the mean amount of {_BEFORE_30D}; unknown where that is 0 or there is none",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "zscore_30d",
        Key.CARD,
        "1",
        "(amount - m) / s, with m and s the mean and population standard deviation of the amounts of "
        f"{_BEFORE_30D}; unknown below two amounts or where s is 0",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "ratio_robust",
        Key.CARD,
        "1",
        "Amount divided by the card's robust mean r before it, unknown where r is 0; r starts as the first "
        f"amount above 0; the card's n-th amount x then moves it by (min(x, {CLIP_RATIO:g} r) - r) / "
        f"min(n, {ROBUST_MEMORY})",
    ),
    Feature(
        "ratio_median",
        Key.CARD,
        "1",
        f"Amount divided by the median of the {MEDIAN_OF} previous amounts that are newest by event time "
        "(fewer if the 30 days before have fewer); the median is the lower one of two middle amounts; "
        "unknown where it is 0 or there is no such amount",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "spikes_1h",
        Key.CARD,
        "1",
        "Spikes among the card's other transactions in (t - 1h, t]; "
        f"a spike has ratio_robust > {SPIKE_RATIO:g}",
        window_ms=HOUR_MS,
    ),
    Feature(
        "spikes_24h",
        Key.CARD,
        "1",
        "Spikes among the card's other transactions in (t - 24h, t]",
        window_ms=DAY_MS,
    ),
    Feature(
        "spikes_7d",
        Key.CARD,
        "1",
        "Spikes among the card's other transactions in (t - 7d, t]",
        window_ms=7 * DAY_MS,
    ),
    Feature(
        "spikes_30d",
        Key.CARD,
        "1",
        f"Spikes among {_BEFORE_30D}",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "time_since_spike",
        Key.CARD,
        "s",
        f"t minus the event time of the latest spike among {_BEFORE_30D}; unknown without one",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "new_merchant",
        Key.CARD,
        "1",
        f"1 if none of {_BEFORE_30D} was at this merchant, else 0",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "new_country",
        Key.CARD,
        "1",
        f"1 if none of {_BEFORE_30D} was in this country, else 0",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "travel_speed",
        Key.CARD,
        "km/h",
        "Great-circle distance from the previous transaction's country to this one's (centroids, to the "
        "metre), over the time between them (at least 1 s); unknown without a previous one or for an unknown "
        "country",
        window_ms=30 * DAY_MS,
    ),
    Feature(
        "has_profile", Key.PROFILE, "1", "1 if the bank's profile of the card was known at arrival, else 0"
    ),
    Feature(
        "limit_use_24h",
        Key.PROFILE,
        "1",
        "sum_24h divided by the profile's credit limit; unknown without a profile or with a limit of 0",
        window_ms=DAY_MS,
    ),
    Feature("account_age", Key.PROFILE, "d", "Day of t (UTC) minus the day the account was opened"),
    Feature("risk_tier", Key.PROFILE, "1", "Risk tier of the profile, 0..3"),
    Feature(
        "away_from_home",
        Key.PROFILE,
        "1",
        "1 if the country is not the profile's home country, else 0; unknown without a profile or country",
    ),
)
"""Every feature except merchant label features (`merchants.catalogue`), in column order."""

NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)
"""Feature names in column order."""
COLUMN: dict[str, int] = {name: number for number, name in enumerate(NAMES)}
"""Column number by feature name."""
IDENTITIES: tuple[str, ...] = tuple(feature.identity for feature in FEATURES)
"""name:version of each feature, in column order."""


def feature_hash(identities: Iterable[str] = IDENTITIES) -> str:
    """Compute SHA-256 (hex) over names, versions and order; it identifies a training set's feature list."""
    return hashlib.sha256("\n".join(identities).encode()).hexdigest()


def names_of(identities: Iterable[str]) -> tuple[str, ...]:
    """Return the column names of features that are given as name:version."""
    return tuple(identity.rpartition(":")[0] for identity in identities)


def lacking(wanted: Iterable[str], computed: Iterable[str] = IDENTITIES) -> list[str]:
    """Return the wanted features (name:version) that are not in `computed`, by default this release's."""
    available = set(computed)
    return [identity for identity in wanted if identity not in available]
