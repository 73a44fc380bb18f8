"""The plan of a load test, shared by the command line, locust's options and every worker."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.rate_profile import SHAPES


@dataclass(frozen=True)
class LoadTestPlan:
    """Plan of one run. Each field is also an option of locust, prefixed with `--tx-`."""

    rate: float = 1_000.0
    """Transactions per second of all workers together."""
    for_s: float = 60.0
    """Measured seconds."""
    warm_up_s: float = 5.0
    """Seconds before the measured ones; their transactions are audited, but not in the latency's
    percentiles."""
    shape: str = "steady"
    """steady, ramp, spike, soak or replay."""
    factor: float = 5.0
    """Rate of a spike as a multiple of `rate`."""
    cards: int = 50_000
    """Number of simulated cards."""
    seed: int = 1
    """Seed of the simulated world."""
    replay: str = ""
    """Parquet file of transactions for the shape replay; the times in the file apply instead of `rate`."""
    speed: float = 1.0
    """Speed of a replay as a multiple of the file's own time."""
    drain_s: float = 60.0
    """Time limit for the job to decide all transactions after the last was sent, seconds."""
    sidecar: str = ""
    """URL of the job's sidecar; empty: no sidecar users."""
    sidecar_users: int = 2
    """Number of users that read the sidecar's metrics, readiness and status."""
    directory: str = ".fraud/loadtest/run"
    """Directory of the result, the log of histograms and the encoded transactions."""

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise LoadTestError(f"no shape {self.shape!r}; give one of {', '.join(SHAPES)}")
        if not (self.rate > 0 and self.for_s > 0 and self.warm_up_s >= 0 and self.speed > 0):
            raise LoadTestError(
                "rate, length and speed must be above 0, the warm-up at least 0; "
                "give --rate, --for, --speed or --warm-up"
            )
        if (self.shape == "replay") != bool(self.replay):
            raise LoadTestError("the shape replay and --replay FILE.parquet belong together; give both")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "LoadTestPlan":
        """Pick a plan's fields from a mapping."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

    @classmethod
    def from_json(cls, text: str | bytes) -> "LoadTestPlan":
        """Parse the output of `to_json`."""
        return cls.of(json.loads(text))

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Share:
    """One worker's share of a run, its lane: every transaction whose number modulo `lanes` is `lane`."""

    run: int
    """Number of the run, 24 bits, in every transaction_id."""
    lane: int
    lanes: int

    def __post_init__(self) -> None:
        if not (0 <= self.lane < self.lanes <= 256 and 0 <= self.run < 1 << 24):
            raise LoadTestError(f"{self} is out of range; run with at most 256 workers")
