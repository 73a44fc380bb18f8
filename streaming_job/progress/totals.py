"""Running totals of a key group since its first Kafka transaction, and sums over several groups. Pure.

Each progress record contains the totals, so a reader needs only one record of each group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_job.progress.histogram import Histogram
from streaming_job.progress.trials import Trials

HISTOGRAMS = ("lateness_ms", "latency_ms", "profile_age_ms", "scores")
"""Names of a progress record's histograms."""


@dataclass
class Totals:
    """Sums over the Kafka transactions of one key group, or of several."""

    since: int = 0
    """Start of the first Kafka transaction, ms; 0 if there is none."""
    commits: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Sums of the progress records' `counts`, by name."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """Dead letters by reason."""
    dead_letters_by_topic: Counter[str] = field(default_factory=Counter)
    """Dead letters by topic of their records."""
    rules: Counter[str] = field(default_factory=Counter)
    """Alerts in which a rule fired, by rule."""
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in HISTOGRAMS}
    )
    """Histograms by name, see HISTOGRAMS."""
    elapsed_ms: float = 0.0
    """Sum, over all commits, of the times since the previous commit or since the group was opened."""
    phases_ms: Counter[str] = field(default_factory=Counter)
    """Processing time by phase, ms."""
    rebuilds: int = 0
    """Number of working copies rebuilt from the checkpoint."""
    trials: Trials = field(default_factory=Trials)
    """Trials of the newest rollouts with challengers."""

    def _add(self, other: "Totals") -> None:
        """Add the totals of another key group, without trials."""
        if other.commits:
            self.since = min(self.since, other.since) if self.commits else other.since
        self.commits += other.commits
        add_counts(self.counts, other.counts)
        add_counts(self.dead_letters, other.dead_letters)
        add_counts(self.dead_letters_by_topic, other.dead_letters_by_topic)
        add_counts(self.rules, other.rules)
        for name, histogram in other.histograms.items():
            self.histograms[name].add(histogram.bounds, histogram.counts, histogram.total)
        self.elapsed_ms += other.elapsed_ms
        add_counts(self.phases_ms, other.phases_ms)
        self.rebuilds += other.rebuilds

    def add(self, other: "Totals") -> None:
        """Add the totals of another key group."""
        self._add(other)
        self.trials.add(other.trials)
        self.trials.keep_newest()

    @staticmethod
    def of_groups(groups: Iterable["Totals"]) -> "Totals":
        """Return the sum of several groups' totals, without trials.

        Groups drop old trials at different times: `service.health.rollout_progress.trials` adds them up.
        """
        total = Totals()
        for group in groups:
            total._add(group)
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the field `totals` of the progress record, for orjson with OPT_SERIALIZE_NUMPY.

        The result shares its counters and arrays with this object.
        """
        return {
            "since": self.since,
            "commits": self.commits,
            "counts": self.counts,
            "dead_letters_by_reason": self.dead_letters,
            "dead_letters_by_topic": self.dead_letters_by_topic,
            "alerts_by_rule": self.rules,
            **{name: self.histograms[name].to_json() for name in HISTOGRAMS},
            "elapsed_ms": self.elapsed_ms,
            "phases_ms": {name: round(ms, 3) for name, ms in self.phases_ms.items()},
            "rebuilds": self.rebuilds,
            "trials": self.trials.to_json(),
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Totals":
        """Parse what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the totals are invalid.
        """
        return Totals(
            since=int(record["since"]),
            commits=int(record["commits"]),
            counts=_numbers(record["counts"]),
            dead_letters=_numbers(record["dead_letters_by_reason"]),
            dead_letters_by_topic=_numbers(record["dead_letters_by_topic"]),
            rules=_numbers(record["alerts_by_rule"]),
            histograms={name: Histogram.from_json(record[name]) for name in HISTOGRAMS},
            elapsed_ms=float(record["elapsed_ms"]),
            phases_ms=_numbers(record["phases_ms"]),
            rebuilds=int(record["rebuilds"]),
            trials=Trials.from_json(record["trials"]),
        )


def add_counts(sums: Counter[str], numbers: Mapping[str, Any]) -> None:
    """Add numbers (int or float) by name; faster than Counter.update."""
    for name, number in numbers.items():
        sums[name] = sums.get(name, 0) + number


def _numbers(record: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: number + 0 for name, number in record.items()})
