"""What one run measured, as JSON beside its log of histograms."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

FILE = "result.json"
HISTOGRAMS = "latency.hlog"


@dataclass
class Result:
    """Of all workers together. Times in seconds from the start of the schedule, warm-up included."""

    plan: dict[str, Any]
    workers: int
    offered_rate: float = 0.0
    """Events per second that the schedule asked for, in the measured time."""
    achieved_rate: float = 0.0
    """Events per second that the brokers had acknowledged."""
    events: int = 0
    """On the schedule, with those of the warm-up."""
    acknowledged: int = 0
    unsent: int = 0
    generator_cores: float = 0.0
    """Processors that all workers together used while they sent."""
    alerts_seen: int = 0
    """By the workers' consumers, with those of the warm-up."""
    latency_ms: dict[str, float] = field(default_factory=dict)
    """Percentiles from intended time to the alert in a consumer's hands."""
    latencies: int = 0
    """How many they are made of."""
    slip_ms: dict[str, float] = field(default_factory=dict)
    """Percentiles from intended time to sending."""
    backlog_at_end: int | None = None
    """Job's lag when everything was sent, records; None: not known."""
    drained_s: float | None = None
    """How long after that the lag was 0; None: it never was."""
    lost_workers: list[str] = field(default_factory=list)
    """What became of workers that did not live to the end."""
    fault: str = ""
    """What ended the run before its time."""
    latency_curve: list[tuple[float, float]] = field(default_factory=list)
    """(percentile, ms)."""
    lag: list[tuple[float, int]] = field(default_factory=list)
    """(second, records behind)."""
    seconds: list[dict[str, float]] = field(default_factory=list)
    """Per second: at, offered, sent (per second), p50, p99, max (ms), slip_p99 (ms), alerts."""

    def write(self, directory: Path) -> None:
        """Write it to its file; readers never see half of it."""
        partial = directory / f"{FILE}.partial"
        partial.write_text(json.dumps(asdict(self)) + "\n")
        partial.rename(directory / FILE)

    @classmethod
    def read(cls, directory: Path) -> "Result":
        """The one of a directory.

        Raises:
            FileNotFoundError: the run left none.
        """
        found = json.loads((directory / FILE).read_text())
        return cls(**{one.name: found[one.name] for one in fields(cls)})
