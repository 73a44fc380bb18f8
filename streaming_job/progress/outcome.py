"""The outcome of a key group's records since its last Kafka transaction."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming_job.contracts.topics import PROMPT, WRITTEN
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.log.records import Arrived, PartitionId
from streaming_job.progress.trials import Trials

LATENESS_MS = (0.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 6e4, 3e5, 6e5, 3.6e6, 2.16e7, 8.64e7, 6.048e8)
"""Upper bounds of the lateness histogram: arrival minus event time, ms."""
LATENCY_MS = (5.0, 10.0, 20.0, 50.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1e3, 2e3, 5e3, 1e4, 6e4, 3.6e6)
"""Upper bounds of the latency histogram: arrival to commit, ms."""
PROFILE_AGE_MS = (1e3, 6e4, 3.6e6, 8.64e7, 6.048e8, 2.592e9, 3.1536e10)
"""Upper bounds of the histogram of profile ages at the time of use, ms."""
SCORES = tuple(step / 10 for step in range(1, 11))
"""Upper bounds of the score histogram."""


class Writable(Protocol):
    """A record of an output topic, which may be encoded only when it is written."""

    @property
    def record_key(self) -> bytes | None:
        """Kafka key."""

    def encode(self) -> bytes:
        """Return the value."""


@dataclass(frozen=True)
class OutputRecord:
    """A record of an output topic, ready to be produced."""

    record_key: bytes
    value: bytes
    partition: int = -1
    """Partition of the transaction that it is about; -1: the topic has no digest."""
    offset: int = -1
    """Offset of this transaction."""

    def encode(self) -> bytes:
        """Return the value."""
        return self.value


@dataclass
class PartitionTimes:
    """Event times and arrivals of one partition's transactions."""

    max_event_time: int
    """ms."""
    max_arrival: int
    """ms."""
    lateness: NDArray[np.int64]
    """Histogram by LATENESS_MS."""

    def add(self, other: "PartitionTimes") -> None:
        """Add the times of more transactions of the partition."""
        self.max_event_time = max(self.max_event_time, other.max_event_time)
        self.max_arrival = max(self.max_arrival, other.max_arrival)
        self.lateness = self.lateness + other.lateness


def histogram(values: NDArray[np.generic], bounds: tuple[float, ...]) -> NDArray[np.int64]:
    """Count values by bucket: each holds values above the previous bound, up to its own; the last is open.

    Args:
        values: shape (n,); NaN is not counted.
        bounds: ascending upper bounds, b of them.

    Returns:
        Shape (b + 1,).
    """
    numbers = values[~np.isnan(values)]
    return np.bincount(_array(bounds).searchsorted(numbers, side="left"), minlength=len(bounds) + 1)


@cache
def _array(bounds: tuple[float, ...]) -> NDArray[np.float64]:
    return np.array(bounds)


def _no_counts(bounds: tuple[float, ...]) -> NDArray[np.int64]:
    return np.zeros(len(bounds) + 1, dtype=np.int64)


@dataclass
class Outcome:
    """The content of one Kafka transaction; it grows with each mini-batch."""

    is_silent: bool = False
    """Whether an earlier run has written the output of these transactions, so that nothing is built of it."""
    records: dict[str, list[Any]] = field(default_factory=lambda: {topic: [] for topic in WRITTEN})
    """Records (`Writable`) in the order in which they are to be written, by the field of `Topics` that names
    their topic. Those of a topic with a digest are `OutputRecord`s, which the commit sorts."""
    has_promise: bool = False
    """Whether the merchant facts hold a promise, for which other groups may wait."""
    counts: Counter[str] = field(default_factory=Counter)
    """The progress record's `counts`, except `records` and those that are lengths of the lists above; in
    addition `rebuilds`, which the record contains in `state`."""
    rules: Counter[str] = field(default_factory=Counter)
    """Alerts by rule."""
    partitions: dict[int, PartitionTimes] = field(default_factory=dict)
    """Partition of the transactions -> times; without partitions that had none."""
    newest: dict[PartitionId, Arrived] = field(default_factory=dict)
    """The last record read of each partition of the inputs; without partitions of which none was read."""
    lateness: NDArray[np.int64] = field(default_factory=lambda: _no_counts(LATENESS_MS))
    scores: NDArray[np.int64] = field(default_factory=lambda: _no_counts(SCORES))
    profile_ages: NDArray[np.int64] = field(default_factory=lambda: _no_counts(PROFILE_AGE_MS))
    """Ages of profiles, except those that count as known from the beginning."""
    sums: Counter[str] = field(default_factory=Counter)
    """Sums of the values behind the histograms: lateness_ms, profile_age_ms, scores."""
    unmeasured: list[tuple[NDArray[np.void], Any, NDArray[np.int64]]] = field(default_factory=list)
    """Transactions, their `Decisions`, and from when on the profiles of the accepted ones were known:
    `measures.measure` counts them."""
    unscored: list[NDArray[np.float64]] = field(default_factory=list)
    """Scores that `measures.measure` counts."""
    arrivals: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Arrivals of the transactions, ms; their latencies are computed at the commit."""
    phases: Counter[str] = field(default_factory=Counter)
    """Milliseconds by phase."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Size of the state: cards, cards_without_profile, events, local_bytes; empty if not measured."""
    rollout: dict[str, Any] | None = None
    """Of the newest plan of rollouts by which a transaction was decided: its `number`, which grows from plan
    to plan, and the `rollout_id` and `model` (a `ModelRef`) of its champion; None: no transaction was
    decided."""
    trials: Trials = field(default_factory=Trials)
    """Counts of challengers and champion on the same transactions."""
    applied: orjson.Fragment | None = None
    """The newest rollout events, with the offsets from which they apply; None if unchanged."""
    feature_counts: Callable[[], dict[str, Any] | None] = lambda: None
    """Returns the current `feature_counts` of the progress record; None if the champion has no bins."""
    set_aside: dict[int, str] | None = None
    """Offset of each proposal whose models cannot decide -> reason; None: as in the previous outcome, because
    no rollout event was read."""

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters among the records."""
        return self.records["dead_letters"]

    @property
    def is_prompt(self) -> bool:
        """Whether a record has to be committed at once."""
        return self.has_promise or any(map(self.records.__getitem__, PROMPT))
