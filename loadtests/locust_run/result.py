"""The result of a run, stored as JSON beside its log of histograms."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from deploy.local.files import replace_json

FILE = "result.json"
HISTOGRAMS = "latency.hlog"


@dataclass
class Result:
    """Result of all workers together. Times are seconds from the start of the warm-up."""

    plan: dict[str, Any]
    workers: int
    offered_rate: float = 0.0
    """Scheduled events per second in the measured time."""
    achieved_rate: float = 0.0
    """Acknowledged events per second in the measured time."""
    events: int = 0
    """Number of scheduled events, with those of the warm-up."""
    acknowledged: int = 0
    unsent: int = 0
    generator_cores: float = 0.0
    """CPU cores used by all workers together while they sent."""
    alerts_seen: int = 0
    """Alerts received by the workers' consumers, with those of the warm-up."""
    latency_ms: dict[str, float] = field(default_factory=dict)
    """Percentiles of the time from intended sending to the receipt of the alert."""
    arrival_ms: dict[str, float] = field(default_factory=dict)
    """Percentiles of the time from the transaction's arrival (its Kafka timestamp) to the receipt of the
    alert: the latency that `fraud bench` and `fraud demo` report."""
    latencies: int = 0
    slip_ms: dict[str, float] = field(default_factory=dict)
    """Percentiles of the time from intended to actual sending."""
    backlog_at_end: int | None = None
    """Job's lag when everything was sent, records; None: unknown."""
    drained_s: float | None = None
    """Time from the end of sending until the lag was 0, seconds; None: it never was."""
    lost_workers: list[str] = field(default_factory=list)
    """Lost workers, with reasons."""
    fault: str = ""
    """What ended the run early, apart from lost workers; empty: nothing."""
    latency_curve: list[tuple[float, float]] = field(default_factory=list)
    """(percentile, ms)."""
    lag: list[tuple[float, int]] = field(default_factory=list)
    """(second, lag in records)."""
    seconds: list[dict[str, float]] = field(default_factory=list)
    """Row of each second: `at` in s; `offered` and `sent` per second; `p50`, `p99`, `max` of the latency and
    `slip_p99`, all in ms; number of `alerts`."""

    def write(self, directory: Path) -> None:
        """Write the result to its file, atomically."""
        replace_json(directory / FILE, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> "Result":
        """Read the result of a directory."""
        values = json.loads((directory / FILE).read_text())
        return cls(**{column.name: values[column.name] for column in fields(cls)})
