"""Progress records folded into totals: pure, each batch counted once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Histogram:
    """Counts by upper bound; bounds may change between releases, then their union is kept."""

    counts: Counter[float] = field(default_factory=Counter)
    """Upper bound -> events in its bucket alone (not cumulative); the open bucket is at infinity."""
    total: float | None = 0.0
    """Sum of the values; None as soon as one record does not say."""

    def add(self, record: Mapping[str, Any], scale: float = 1.0) -> None:
        """Add `{le, counts[, sum]}` of one record; bounds and sum are multiplied by `scale`."""
        bounds = [bound * scale for bound in record["le"]]
        for bound, count in zip([*bounds, float("inf")], record["counts"], strict=False):
            self.counts[bound] += count
        told = record.get("sum")
        self.total = None if told is None or self.total is None else self.total + told * scale

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, events at or below it), ascending; the last bound is infinity."""
        running, out = 0, []
        for bound in sorted({*self.counts, float("inf")}):
            running += self.counts[bound]
            out.append((bound, running))
        return out


@dataclass
class Totals:
    """Everything that the progress of one job adds up to, from the first record on."""

    batches: int = 0
    """Micro-batches counted."""
    repeated: int = 0
    """Records left out because their batch had been counted."""
    counts: Counter[str] = field(default_factory=Counter)
    """Sums of the contract's `counts` by name."""
    dead_letters: Counter[str] = field(default_factory=Counter)
    """By reason."""
    rules: Counter[str] = field(default_factory=Counter)
    """Alerts in which a rule fired, by rule."""
    latency: Histogram = field(default_factory=Histogram)
    """Kafka timestamp of the transactions to the commit, seconds."""
    lateness: Histogram = field(default_factory=Histogram)
    """Event time behind the arrival, seconds."""
    scores: Histogram = field(default_factory=Histogram)
    """Scores of the model."""
    batch_seconds: float = 0.0
    """Time spent in batches."""
    phase_seconds: Counter[str] = field(default_factory=Counter)
    """Of it, by phase."""
    rebuilds: int = 0
    """Local copies of state rebuilt from the checkpoint."""
    event_times: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic, partition) -> greatest event time seen, ms."""
    end_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic, partition) -> end offset of the newest batch that read it."""
    last: Mapping[str, Any] | None = None
    """The newest record counted."""
    last_batch: dict[str, int] = field(default_factory=dict)
    """query_id -> greatest batch_id counted."""

    def add(self, record: Mapping[str, Any]) -> bool:
        """Fold one record in.

        Args:
            record: a decoded job-progress.v1.

        Returns:
            False when its batch had been counted before: batch ids of a query only grow, so one that does
            not is the same batch read again.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: not a progress record; nothing was added.
        """
        query, batch = str(record["query_id"]), int(record["batch_id"])
        if batch <= self.last_batch.get(query, -1):
            self.repeated += 1
            return False
        one = _Batch.read(record)
        self.last_batch[query] = batch
        self.batches += 1
        self.counts.update(record["counts"])
        self.dead_letters.update(record["dead_letters_by_reason"])
        self.rules.update(record["alerts_by_rule"])
        self.latency.add(record["latency_ms"], 1e-3)
        self.lateness.add(record["lateness_ms"], 1e-3)
        self.scores.add(record["scores"])
        self.batch_seconds += one.seconds
        self.phase_seconds.update(one.phase_seconds)
        self.rebuilds += one.rebuilds
        self.end_offsets.update(one.end_offsets)
        for partition, time in one.event_times.items():
            self.event_times[partition] = max(time, self.event_times.get(partition, time))
        self.last = record
        return True


@dataclass(frozen=True)
class _Batch:
    """What one record adds; reading it checks the shape of everything before anything is added."""

    seconds: float
    phase_seconds: dict[str, float]
    rebuilds: int
    end_offsets: dict[tuple[str, int], int]
    event_times: dict[tuple[str, int], int]

    @staticmethod
    def read(record: Mapping[str, Any]) -> "_Batch":
        for name in ("counts", "dead_letters_by_reason", "alerts_by_rule"):
            for count in record[name].values():
                int(count)
        for name in ("latency_ms", "lateness_ms", "scores"):
            sum(record[name]["le"])
            sum(record[name]["counts"])
        places = {(str(p["topic"]), int(p["partition"])): p for p in record["partitions"]}
        for name in ("cards", "events", "local_bytes"):
            int(record["state"][name])
        dict(record["model"] or {})
        str(record["rollout_id"])
        return _Batch(
            seconds=(record["written_at"] - record["started_at"]) / 1e3,
            phase_seconds={phase: float(ms) / 1e3 for phase, ms in record["phases_ms"].items()},
            rebuilds=int(record["state"]["rebuilds"]),
            end_offsets={place: int(p["end_offset"]) for place, p in places.items()},
            event_times={
                place: int(p["max_event_time"])
                for place, p in places.items()
                if p["max_event_time"] is not None
            },
        )
