"""The last minutes: throughput, latency, refused records by input, failures of the model. Pure.

Computed from the growth of the job's totals. The counts of labels leave out those that came later than the
job's state reaches (`label_too_old`): such labels are no fault.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_job.contracts import Reason
from streaming_job.contracts.topics import ACCEPTED, Topics
from streaming_job.progress.totals import Totals

RATES_OVER_S = 60.0
PERCENTILES = (50, 95, 99)
LEAST = 5
"""Least number of failures that count as a fault: a single bad record is none."""
MOST_OF = 0.5
"""Share of the records, or of the transactions, above which failures count as a fault."""
_OTHERS = ("transactions", "scoring_failures", "foreign_facts")
"""Counts of progress records that are sampled as they are."""


@dataclass(frozen=True)
class Rates:
    """Throughput and latency of the last minute."""

    per_s: float
    """Transactions decided per second."""
    latency_s: dict[int, float]
    """Percentile -> seconds from arrival to commit; empty without transactions."""


@dataclass(frozen=True)
class InputCount:
    """Records of one input."""

    records: int
    """All records that were processed, dead letters included."""
    dead_letters: int

    @property
    def is_mostly_dead(self) -> bool:
        """Whether most records are dead letters."""
        return are_most(self.dead_letters, self.records)


@dataclass(frozen=True)
class Recent:
    """What the job has processed within a window of time."""

    window_s: float
    """Length of the window, or of the shorter time sampled so far."""
    inputs: Mapping[str, InputCount]
    """Input (transactions, profiles, labels, rollouts, schemas) -> its records."""
    transactions: int
    scoring_failures: int
    """Transactions without a score of the champion."""
    foreign_facts: int
    """Records among the merchant facts that no job wrote."""
    retired: int
    """Records that came too late to the topic that the transactions have left."""

    @property
    def model_fails(self) -> bool:
        """Whether the champion gives no score for most transactions."""
        return are_most(self.scoring_failures, self.transactions)


def are_most(failures: int, attempts: int) -> bool:
    """Return whether failures are enough, and a large enough share of the attempts, to be a fault."""
    return failures >= LEAST and failures > MOST_OF * attempts


def input_counts(totals: Totals, topics: Topics) -> dict[str, InputCount]:
    """Return the records of each input since the totals began."""
    dead: Counter[str] = Counter(labels=-totals.dead_letters[Reason.LABEL_TOO_OLD.value])
    for topic, row in topics.rows():
        dead[row.input_name] += totals.dead_letters_by_topic[topic]
    return {
        name: InputCount(sum(totals.counts[count] for count in accepted) + dead[name], dead[name])
        for name, accepted in ACCEPTED.items()
    }


class _Window:
    """Samples of cumulative counts, taken within a window of time."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, Counter[Any]]] = deque()

    def add(self, now_s: float, sample: Counter[Any]) -> None:
        if self._seen and (
            now_s < self._seen[-1][0]
            or any(sample[name] < number for name, number in self._seen[-1][1].items())
        ):
            self._seen.clear()  # the clock was set back, or the totals were restarted
        self._seen.append((now_s, sample))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= self._window_s:
            self._seen.popleft()

    @property
    def growth(self) -> tuple[float, Counter[Any]] | None:
        """Seconds from the first to the last sample, and how much each count grew; None before the second."""
        if len(self._seen) < 2:
            return None
        (first_s, before), (last_s, after) = self._seen[0], self._seen[-1]
        return last_s - first_s, Counter({name: number - before[name] for name, number in after.items()})


class RecentRates:
    """Samples of the job's totals, for throughput and latency within a window of time."""

    def __init__(self, window_s: float = RATES_OVER_S) -> None:
        self._window = _Window(window_s)

    def add(self, now_s: float, totals: Totals) -> None:
        """Add the current totals."""
        sample = Counter[Any](dict(totals.histograms["latency_ms"].cumulative()))  # by upper bound in ms
        sample["transactions"] = totals.counts["transactions"]
        self._window.add(now_s, sample)

    @property
    def rates(self) -> Rates | None:
        """Rates within the window, or of the shorter time sampled so far; None before the second sample."""
        growth = self._window.growth
        if growth is None or growth[0] <= 0:
            return None
        seconds, grown = growth
        decided = grown.pop("transactions")
        latencies = {share: quantile(sorted(grown.items()), share / 100) for share in PERCENTILES}
        return Rates(
            decided / seconds, {share: ms / 1e3 for share, ms in latencies.items() if ms is not None}
        )


class RecentCounts:
    """Samples of the job's totals, for its counts within a window of time."""

    def __init__(self, topics: Topics, window_s: float) -> None:
        self._topics, self._window = topics, _Window(window_s)

    def add(self, now_s: float, totals: Totals) -> None:
        """Add the current totals."""
        sample = Counter[Any]({("", name): int(totals.counts[name]) for name in _OTHERS})
        sample["", "retired"] = int(totals.dead_letters[Reason.RETIRED_TOPIC.value])
        for name, count in input_counts(totals, self._topics).items():
            sample["records", name], sample["dead", name] = count.records, count.dead_letters
        self._window.add(now_s, sample)

    @property
    def recent(self) -> Recent | None:
        """Counts within the window; None before the second sample."""
        if (growth := self._window.growth) is None:
            return None
        seconds, grown = growth
        inputs = {
            name: InputCount(number, grown["dead", name])
            for (kind, name), number in grown.items()
            if kind == "records"
        }
        return Recent(seconds, inputs, *(grown["", name] for name in (*_OTHERS, "retired")))


def quantile(cumulative: Sequence[tuple[float, int]], share: float) -> float | None:
    """Estimate a quantile from a histogram, linear within a bucket, as Prometheus' histogram_quantile does.

    Args:
        cumulative: (upper bound, values at or below it), ascending; the last bound is infinity.
        share: 0..1.

    Returns:
        The estimate; the greatest finite bound if the quantile lies above it; None without values.
    """
    if not cumulative or cumulative[-1][1] <= 0:
        return None
    rank = share * cumulative[-1][1]
    below, lower = 0, 0.0
    for bound, count in cumulative:
        if count >= rank and count > below:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound if bound != float("inf") else lower
    return lower
