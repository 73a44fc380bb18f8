"""What a key group makes of a micro-batch, and how the groups' outcomes add up to the job's progress."""

import pickle
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_job.packets import DeadLetter

LATENESS_MS = (0.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 6e4, 3e5, 6e5, 3.6e6, 2.16e7, 8.64e7, 6.048e8)
"""Upper bounds of the lateness histogram: event time behind arrival."""
LATENCY_MS = (10.0, 20.0, 50.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1e3, 2e3, 5e3, 1e4, 6e4, 3.6e6)
"""Upper bounds of the latency histogram: arrival to commit."""
PROFILE_AGE_MS = (1e3, 6e4, 3.6e6, 8.64e7, 6.048e8, 2.592e9, 3.1536e10)
"""Upper bounds of the histogram of how old profiles are when they are used."""
SCORES = tuple(step / 10 for step in range(1, 11))
"""Upper bounds of the score histogram."""
PIECE = 1 << 20
"""Bytes of an outcome that travel in one row."""
_SIZE = struct.Struct("<q")
ARRIVAL_BINS = 256
"""Resolution of a batch's arrivals, of which latencies are made when it is written."""


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
    """Times of a batch's transactions of one partition."""

    max_event_time: int
    """ms."""
    max_arrival: int
    """ms."""
    lateness: NDArray[np.int64]
    """Histogram by LATENESS_MS."""

    def add(self, other: "PartitionTimes") -> None:
        """Take in another group's."""
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
    """Of one key group, or of all groups together."""

    alerts: list[Alert] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of the contract's `counts`, except those that follow from the lists."""
    rules: Counter[str] = field(default_factory=Counter)
    """Alerts by rule."""
    partitions: dict[int, PartitionTimes] = field(default_factory=dict)
    """By transaction partition; those without transactions are not there."""
    lateness: NDArray[np.int64] = field(default_factory=lambda: _no_counts(LATENESS_MS))
    scores: NDArray[np.int64] = field(default_factory=lambda: _no_counts(SCORES))
    profile_ages: NDArray[np.int64] = field(default_factory=lambda: _no_counts(PROFILE_AGE_MS))
    """Of profiles that became known; not of those that count as known from the beginning."""
    sums: Counter[str] = field(default_factory=Counter)
    """Sums of the values behind the histograms: lateness_ms, profile_age_ms, scores; and arrivals, ms."""
    arrivals: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = field(default_factory=list)
    """Histograms of the transactions' arrivals, ms: (counts, edges), one per group."""
    phases: Counter[str] = field(default_factory=Counter)
    """Milliseconds by phase; of the slowest group."""
    sizes: dict[int, dict[str, int]] = field(default_factory=dict)
    """State sizes by key group: cards, events, local_bytes."""
    rollout: dict[str, Any] | None = None
    """The newest rollout that decided: its number in the history, its id, its model."""

    def pack(self) -> list[bytes]:
        """As bytes, for the way to the driver, in pieces.

        Spark holds a row of its result several times over, and rows one after the other. Alerts are mostly
        names of fields, so a batch in which every transaction is one shrinks to a seventh.
        """
        plain = pickle.dumps(self, protocol=5)
        packed = _SIZE.pack(len(plain)) + pa.compress(plain, codec="zstd", asbytes=True)
        return [packed[at : at + PIECE] for at in range(0, len(packed), PIECE)]

    @staticmethod
    def unpack(pieces: Iterable[bytes]) -> "Outcome":
        """Inverse of `pack`."""
        packed = memoryview(b"".join(pieces))
        (size,) = _SIZE.unpack_from(packed)
        outcome = pickle.loads(pa.decompress(packed[_SIZE.size :], size, codec="zstd"))
        assert isinstance(outcome, Outcome)
        return outcome

    def add(self, other: "Outcome") -> None:
        """Take in another group's outcome; alerts and dead letters in the order of the log."""
        self.alerts = sorted(self.alerts + other.alerts, key=lambda alert: (alert.partition, alert.offset))
        self.dead_letters = sorted(
            self.dead_letters + other.dead_letters,
            key=lambda letter: (letter.topic, letter.partition, letter.offset),
        )
        self.counts.update(other.counts)
        self.rules.update(other.rules)
        for partition, times in other.partitions.items():
            if partition in self.partitions:
                self.partitions[partition].add(times)
            else:
                self.partitions[partition] = times
        self.lateness = self.lateness + other.lateness
        self.scores = self.scores + other.scores
        self.profile_ages = self.profile_ages + other.profile_ages
        for name, total in other.sums.items():
            self.sums[name] += total
        self.arrivals += other.arrivals
        self.phases |= other.phases  # Counter union: the greater of both
        self.sizes |= other.sizes
        deciding = [one for one in (self.rollout, other.rollout) if one is not None]
        self.rollout = max(deciding, key=lambda one: one["number"], default=None)
