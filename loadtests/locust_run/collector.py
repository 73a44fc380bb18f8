"""Merges what the workers report into one result."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtests.locust_run import histograms
from loadtests.locust_run.histograms import HistogramLog
from loadtests.locust_run.lane import FAILED, READY, RUNNING, SENT
from loadtests.locust_run.plan import Plan
from loadtests.locust_run.rate_profile import RateProfile
from loadtests.locust_run.result import HISTOGRAMS, Result
from loadtests.locust_run.transactions import rates


@dataclass
class Second:
    """What was reported within a second of the run."""

    latency: Any = field(default_factory=histograms.empty)
    slip: Any = field(default_factory=histograms.empty)
    alerts: int = 0


class Collector:
    """Takes reports as they come, each once."""

    def __init__(self, plan: Plan, lanes: int) -> None:
        """Begin the log of histograms.

        Args:
            plan: of the run.
            lanes: workers.
        """
        self.plan, self.lanes = plan, lanes
        self.newest: dict[int, Mapping[str, Any]] = {}
        """Newest report by lane."""
        self.heard: dict[int, float] = {}
        """When that came, by `now` of `add`."""
        self.latency, self.slip = histograms.empty(), histograms.empty()
        self.alerts = 0
        self._seconds: dict[int, Second] = defaultdict(Second)
        self._sent: dict[int, dict[int, int]] = defaultdict(dict)
        self._log = HistogramLog(Path(plan.directory) / HISTOGRAMS)
        self._profile: RateProfile | None = None if plan.replay else rates(plan)

    def add(self, report: Mapping[str, Any], now: float) -> None:
        """Take a worker's report in.

        Args:
            report: as `Lane.report` makes it.
            now: seconds of any clock.
        """
        lane, at = int(report["lane"]), float(report["at_s"])
        self.newest[lane], self.heard[lane] = report, now
        if at <= 0:
            return
        latency, slip = (histograms.merged([report[name]]) for name in ("latency", "slip"))
        second = self._seconds[int(at)]
        self.latency.add(latency)
        self.slip.add(slip)
        second.latency.add(latency)
        second.slip.add(slip)
        second.alerts += report["alerts"]
        self.alerts += report["alerts"]
        self._sent[lane][int(at)] = int(report["sent"])
        if latency.get_total_count():
            self._log.add(latency, max(0.0, at - 1.0), at)

    def all_in(self, *states: str) -> bool:
        """Whether every lane has reported, and one of these states."""
        return len(self.newest) == self.lanes and all(
            report["state"] in states for report in self.newest.values()
        )

    @property
    def is_ready(self) -> bool:
        """Whether every lane could begin."""
        return self.all_in(READY)

    @property
    def is_sent(self) -> bool:
        """Whether every lane has sent what it could."""
        return self.all_in(SENT)

    def faults(self) -> list[str]:
        """What failed lanes say."""
        return [
            f"worker {lane}: {report['error']}"
            for lane, report in sorted(self.newest.items())
            if report["state"] == FAILED
        ]

    def silent(self, now: float, patience_s: float) -> list[int]:
        """Lanes that have not reported for too long."""
        return [lane for lane in range(self.lanes) if now - self.heard.get(lane, float("-inf")) > patience_s]

    def total(self, name: str) -> int:
        """A count of the newest reports, all lanes together."""
        return sum(int(report[name]) for report in self.newest.values())

    def result(self) -> Result:
        """Everything so far."""
        reports = self.newest.values()
        found = Result(asdict(self.plan), self.lanes)
        found.events, found.unsent = self.total("events"), self.total("unsent")
        # a worker that was lost said nothing of what it did not send
        found.unsent += sum(
            report["events"] - report["acknowledged"] for report in reports if report["state"] == RUNNING
        )
        found.acknowledged, found.alerts_seen = self.total("acknowledged"), self.alerts
        found.offered_rate, found.achieved_rate = self._rates()
        found.generator_cores = sum(
            float(report["cpu_s"]) / float(report["ended_s"]) for report in reports if report["ended_s"]
        )
        found.latency_ms = histograms.percentiles_ms(self.latency)
        found.latencies = self.latency.get_total_count()
        found.latency_curve = histograms.curve(self.latency)
        found.slip_ms = histograms.percentiles_ms(self.slip)
        found.seconds = self._by_second()
        return found

    def _rates(self) -> tuple[float, float]:
        plan, reports = self.plan, self.newest.values()
        ended = max((float(report["ended_s"]) for report in reports), default=0.0)
        length = plan.for_s
        if self._profile is None:  # a file may be shorter than the time
            length = min(length, max(ended - plan.warm_up_s, 1e-3))
            before = self.total("sent") - self.total("sent_measured")
            offered = self.total("events") - before
        else:
            before = self._profile.due_by(plan.warm_up_s)
            offered = self._profile.events - before
        reached = self.total("acknowledged_at_end") - before
        took = max(length, ended - plan.warm_up_s)
        return offered / length, max(0, reached) / took if ended else 0.0

    def _by_second(self) -> list[dict[str, float]]:
        rows = []
        last = max((at for sent in self._sent.values() for at in sent), default=-1)
        before = 0
        for at in range(last + 1):
            sent = sum(
                max((count for then, count in lane.items() if then <= at), default=0)
                for lane in self._sent.values()
            )
            second = self._seconds.get(at, Second())
            row = {
                "at": float(at),
                "offered": self._profile.rate_at(at + 0.5) if self._profile else 0.0,
                "sent": float(sent - before),
                "alerts": float(second.alerts),
            }
            for name, histogram, percent in (
                ("p50", second.latency, 50.0), ("p99", second.latency, 99.0), ("max", second.latency, 100.0),
                ("slip_p99", second.slip, 99.0),
            ):  # fmt: skip
                value = histograms.percentile_ms(histogram, percent)
                if value is not None:
                    row[name] = value
            rows.append(row)
            before = sent
        return rows

    def close(self) -> None:
        """Close the log."""
        self._log.close()
