"""What has come of a key group's records since its last Kafka transaction."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming_job.dead_letters.record import DeadLetter
from streaming_job.progress.trials import Trials

LATENESS_MS = (0.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 6e4, 3e5, 6e5, 3.6e6, 2.16e7, 8.64e7, 6.048e8)
"""Upper bounds of the lateness histogram: event time behind arrival."""
LATENCY_MS = (5.0, 10.0, 20.0, 50.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1e3, 2e3, 5e3, 1e4, 6e4, 3.6e6)
"""Upper bounds of the latency histogram: arrival to commit."""
PROFILE_AGE_MS = (1e3, 6e4, 3.6e6, 8.64e7, 6.048e8, 2.592e9, 3.1536e10)
"""Upper bounds of the histogram of how old profiles are when they are used."""
SCORES = tuple(step / 10 for step in range(1, 11))
"""Upper bounds of the score histogram."""


@dataclass(frozen=True)
class Alert:
    """One alert, ready to be produced."""

    partition: int
    """Of its transaction."""
    offset: int
    """Of its transaction."""
    key: bytes
    value: bytes


@dataclass
class PartitionTimes:
    """Times of transactions of one partition."""

    max_event_time: int
    """ms."""
    max_arrival: int
    """ms."""
    lateness: NDArray[np.int64]
    """Histogram by LATENESS_MS."""

    def add(self, other: "PartitionTimes") -> None:
        """Take in those of more transactions of the partition."""
        self.max_event_time = max(self.max_event_time, other.max_event_time)
        self.max_arrival = max(self.max_arrival, other.max_arrival)
        self.lateness = self.lateness + other.lateness


def histogram(values: NDArray[np.generic], bounds: tuple[float, ...]) -> NDArray[np.int64]:
    """Counts of values <= each bound and > the one before; the last count is of values over all bounds.

    Args:
        values: shape (n,); NaN is not counted.
        bounds: ascending upper bounds, b of them.

    Returns:
        Shape (b + 1,).
    """
    known = values[~np.isnan(values)]
    return np.bincount(np.searchsorted(bounds, known, side="left"), minlength=len(bounds) + 1)


def _no_counts(bounds: tuple[float, ...]) -> NDArray[np.int64]:
    return np.zeros(len(bounds) + 1, dtype=np.int64)


@dataclass
class Outcome:
    """Everything that one Kafka transaction has to tell; it grows with each set of records decided."""

    alerts: list[Alert] = field(default_factory=list)
    suppressed: list[Alert] = field(default_factory=list)
    """Alerts that a cooldown held back."""
    shadow_alerts: list[Alert] = field(default_factory=list)
    """Verdicts of challengers that differ from the champion's."""
    dead_letters: list[DeadLetter] = field(default_factory=list)
    facts: list[bytes] = field(default_factory=list)
    """Records of merchant facts, in the order in which they are to be written."""
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of the contract's `counts`, except those that follow from the lists; and rebuilds."""
    rules: Counter[str] = field(default_factory=Counter)
    """Alerts by rule."""
    partitions: dict[int, PartitionTimes] = field(default_factory=dict)
    """By transaction partition; those without transactions are not there."""
    lateness: NDArray[np.int64] = field(default_factory=lambda: _no_counts(LATENESS_MS))
    scores: NDArray[np.int64] = field(default_factory=lambda: _no_counts(SCORES))
    profile_ages: NDArray[np.int64] = field(default_factory=lambda: _no_counts(PROFILE_AGE_MS))
    """Of profiles that became known; not of those that count as known from the beginning."""
    sums: Counter[str] = field(default_factory=Counter)
    """Sums of the values behind the histograms: lateness_ms, profile_age_ms, scores."""
    arrivals: list[NDArray[np.int64]] = field(default_factory=list)
    """Arrivals of the transactions, ms: their latencies are known when they are written."""
    phases: Counter[str] = field(default_factory=Counter)
    """Milliseconds by phase."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Size of the state: cards, cards_without_profile, events, local_bytes; empty if nobody has looked."""
    rollout: dict[str, Any] | None = None
    """The newest rollout that decided: its number among the reigns, its id, its model (`ModelRef`)."""
    trials: Trials = field(default_factory=Trials)
    """What challengers and champion made of the same transactions."""
    applied: orjson.Fragment | None = None
    """The newest rollout events, and where they began to hold; None if nothing has changed."""
    set_aside: dict[int, str] | None = None
    """By offset of all rollouts that cannot decide: why; None if no rollout has come."""
