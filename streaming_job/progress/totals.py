"""What the progress of a job adds up to, batch by batch, from its first batch on: pure.

The job writes it into each progress record, so whoever wants the totals reads one record.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

HISTOGRAMS = ("lateness_ms", "latency_ms", "profile_age_ms", "scores")
"""Of a progress record."""


@dataclass
class Histogram:
    """Counts by upper bound; bounds may change between releases, then their union is kept."""

    counts: Counter[float] = field(default_factory=Counter)
    """Upper bound -> values in its bucket alone (not cumulative); the open bucket is at infinity."""
    total: float = 0.0
    """Sum of the values."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Add `{le, counts, sum}` of a record."""
        for bound, count in zip([*record["le"], float("inf")], record["counts"], strict=True):
            self.counts[float(bound)] += int(count)
        self.total += float(record["sum"])

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, values at or below it), ascending; the last bound is infinity."""
        running, out = 0, []
        for bound in sorted({*self.counts, float("inf")}):
            running += self.counts[bound]
            out.append((bound, running))
        return out

    def to_json(self) -> dict[str, Any]:
        """`{le, counts, sum}`."""
        bounds = sorted(bound for bound in self.counts if bound != float("inf"))
        counts = [self.counts[bound] for bound in [*bounds, float("inf")]]
        return {"le": bounds, "counts": counts, "sum": self.total}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Histogram":
        """Inverse of `to_json`."""
        made = Histogram()
        made.add(record)
        return made


@dataclass
class Totals:
    """Sums over the batches of one job."""

    since: int = 0
    """Start of the first batch that is in it, ms."""
    batches: int = 0
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
    batch_ms: float = 0.0
    """Time spent in batches."""
    phases_ms: Counter[str] = field(default_factory=Counter)
    """Of it, by phase."""
    rebuilds: int = 0
    """Local copies of state rebuilt from the checkpoint."""

    def plus(self, record: Mapping[str, Any]) -> "Totals":
        """The totals after one more batch.

        Args:
            record: a decoded job-progress.v1 without totals of its own.
        """
        total = deepcopy(self)
        total.since = self.since if self.batches else record["started_at"]
        total.batches += 1
        _add(total.counts, record["counts"].items())
        _add(total.dead_letters, record["dead_letters_by_reason"].items())
        _add(total.rules, record["alerts_by_rule"].items())
        for name in HISTOGRAMS:
            total.histograms[name].add(record[name])
        total.batch_ms += record["written_at"] - record["started_at"]
        _add(total.phases_ms, record["phases_ms"].items())
        total.rebuilds += record["state"]["rebuilds"]
        return total

    def to_json(self) -> dict[str, Any]:
        """The contract's `totals`."""
        return {
            "since": self.since,
            "batches": self.batches,
            "counts": dict(self.counts),
            "dead_letters_by_reason": dict(self.dead_letters),
            "alerts_by_rule": dict(self.rules),
            **{name: self.histograms[name].to_json() for name in HISTOGRAMS},
            "batch_ms": self.batch_ms,
            "phases_ms": {name: round(ms, 3) for name, ms in self.phases_ms.items()},
            "rebuilds": self.rebuilds,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Totals":
        """Inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: these are no totals.
        """
        return Totals(
            since=int(record["since"]),
            batches=int(record["batches"]),
            counts=_numbers(record["counts"]),
            dead_letters=_numbers(record["dead_letters_by_reason"]),
            rules=_numbers(record["alerts_by_rule"]),
            histograms={name: Histogram.from_json(record[name]) for name in HISTOGRAMS},
            batch_ms=float(record["batch_ms"]),
            phases_ms=_numbers(record["phases_ms"]),
            rebuilds=int(record["rebuilds"]),
        )


def _numbers(record: Mapping[str, Any]) -> Counter[str]:
    return Counter({name: number + 0 for name, number in record.items()})


def _add(sums: Counter[str], numbers: Iterable[tuple[str, Any]]) -> None:
    for name, number in numbers:
        sums[name] += number
