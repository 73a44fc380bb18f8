"""Running totals of a key group, from its first transaction on, and of several groups together. Pure.

The job writes the totals into each progress record, so whoever wants them reads one record of each group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_job.progress.histogram import Histogram
from streaming_job.progress.trials import Trials

HISTOGRAMS = ("lateness_ms", "latency_ms", "profile_age_ms", "scores")
"""Of a progress record."""


@dataclass
class Totals:
    """Sums over the Kafka transactions of one key group, or of several."""

    since: int = 0
    """Start of the first transaction that is in it, ms; 0 without one."""
    commits: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """The contract's `counts` by name."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """By reason."""
    rules: Counter[str] = field(default_factory=Counter)
    """Alerts in which a rule fired, by rule."""
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in HISTOGRAMS}
    )
    """By their names in the record."""
    elapsed_ms: float = 0.0
    """Time from each commit to the next, added up over the groups."""
    phases_ms: Counter[str] = field(default_factory=Counter)
    """Time by phase of the work."""
    rebuilds: int = 0
    """Local copies of state rebuilt from the checkpoint."""
    trials: Trials = field(default_factory=Trials)
    """Of the newest rollouts with challengers."""

    def add(self, other: "Totals") -> None:
        """Take in those of another key group."""
        if other.commits:
            self.since = min(self.since, other.since) if self.commits else other.since
        self.commits += other.commits
        add_counts(self.counts, other.counts)
        add_counts(self.dead_letters, other.dead_letters)
        add_counts(self.rules, other.rules)
        for name, histogram in other.histograms.items():
            self.histograms[name].add(histogram.bounds, histogram.counts, histogram.total)
        self.elapsed_ms += other.elapsed_ms
        add_counts(self.phases_ms, other.phases_ms)
        self.rebuilds += other.rebuilds
        self.trials.add(other.trials)

    @staticmethod
    def of_groups(groups: Iterable["Totals"]) -> "Totals":
        """Their sum."""
        total = Totals()
        for group in groups:
            total.add(group)
        return total

    def to_json(self) -> dict[str, Any]:
        """The contract's `totals`, for orjson with OPT_SERIALIZE_NUMPY; a view, not a copy."""
        return {
            "since": self.since,
            "commits": self.commits,
            "counts": self.counts,
            "dead_letters_by_reason": self.dead_letters,
            "alerts_by_rule": self.rules,
            **{name: self.histograms[name].to_json() for name in HISTOGRAMS},
            "elapsed_ms": self.elapsed_ms,
            "phases_ms": {name: round(ms, 3) for name, ms in self.phases_ms.items()},
            "rebuilds": self.rebuilds,
            "trials": self.trials.to_json(),
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Totals":
        """Inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: these are no totals.
        """
        return Totals(
            since=int(record["since"]),
            commits=int(record["commits"]),
            counts=_numbers(record["counts"]),
            dead_letters=_numbers(record["dead_letters_by_reason"]),
            rules=_numbers(record["alerts_by_rule"]),
            histograms={name: Histogram.from_json(record[name]) for name in HISTOGRAMS},
            elapsed_ms=float(record["elapsed_ms"]),
            phases_ms=_numbers(record["phases_ms"]),
            rebuilds=int(record["rebuilds"]),
            trials=Trials.from_json(record.get("trials", {})),
        )


def add_counts(sums: Counter[str], numbers: Mapping[str, Any]) -> None:
    """Add numbers by name; unlike Counter.update it takes any numbers and costs no call of Python a name."""
    for name, number in numbers.items():
        sums[name] = sums.get(name, 0) + number


def _numbers(record: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: number + 0 for name, number in record.items()})
