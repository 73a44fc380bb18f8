"""Merges the workers' reports into one result."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtests.locust_run.lane import FAILED, READY, RUNNING, SENT
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.rate_profile import RateProfile
from loadtests.locust_run.result import HISTOGRAMS, Result
from loadtests.locust_run.transactions import rates
from loadtests.rig import histograms
from loadtests.rig.histograms import HistogramLog


@dataclass
class Second:
    """Sums of the reports of one second of the run."""

    latency: Any = field(default_factory=histograms.empty)
    slip: Any = field(default_factory=histograms.empty)
    alerts: int = 0


class Collector:
    """Adds up reports; each report must be added only once."""

    def __init__(self, plan: LoadTestPlan, lanes: int) -> None:
        """Open the log of histograms."""
        self.plan, self.lanes = plan, lanes
        self.newest: dict[int, Mapping[str, Any]] = {}
        """Newest report by lane."""
        self.heard: dict[int, float] = {}
        """Time of the newest report by lane, from `now` of `add`."""
        self.latency, self.arrival, self.slip = (histograms.empty() for _ in range(3))
        self.alerts = 0
        self._seconds: dict[int, Second] = defaultdict(Second)
        self._sent: dict[int, dict[int, int]] = defaultdict(dict)
        self._log = HistogramLog(Path(plan.directory) / HISTOGRAMS)
        self._profile: RateProfile | None = None if plan.replay else rates(plan)

    def add(self, report: Mapping[str, Any], now: float) -> None:
        """Add a worker's report.

        Args:
            report: a report from `Lane.report`.
            now: current time by any clock, seconds.
        """
        lane, at = int(report["lane"]), float(report["at_s"])
        self.newest[lane], self.heard[lane] = report, now
        if at <= 0:
            return
        latency, slip = (histograms.merged([report[name]]) for name in ("latency", "slip"))
        second = self._seconds[int(at)]
        self.latency.add(latency)
        self.arrival.add(histograms.merged([report["arrival"]]))
        self.slip.add(slip)
        second.latency.add(latency)
        second.slip.add(slip)
        second.alerts += report["alerts"]
        self.alerts += report["alerts"]
        self._sent[lane][int(at)] = int(report["sent"])
        if latency.get_total_count():
            self._log.add(latency, max(0.0, at - 1.0), at)

    def all_in(self, *states: str) -> bool:
        """Return whether every lane's newest report has one of these states."""
        return len(self.newest) == self.lanes and all(
            report["state"] in states for report in self.newest.values()
        )

    @property
    def is_ready(self) -> bool:
        """Whether every lane is ready to send."""
        return self.all_in(READY)

    @property
    def is_sent(self) -> bool:
        """Whether every lane has finished sending."""
        return self.all_in(SENT)

    def faults(self) -> list[str]:
        """Return the errors of failed lanes."""
        return [
            f"worker {lane}: {report['error']}"
            for lane, report in sorted(self.newest.items())
            if report["state"] == FAILED
        ]

    def silent(self, now: float, patience_s: float) -> list[int]:
        """Return the lanes whose newest report is older than `patience_s`, or that have none."""
        return [lane for lane in range(self.lanes) if now - self.heard.get(lane, float("-inf")) > patience_s]

    def total(self, name: str) -> int:
        """Return the sum over all lanes of a count in the newest reports."""
        return sum(int(report[name]) for report in self.newest.values())

    def result(self) -> Result:
        """Return the result so far."""
        reports = self.newest.values()
        result = Result(asdict(self.plan), self.lanes)
        result.events, result.unsent = self.total("events"), self.total("unsent")
        # a worker that was still sending when the run failed has not reported its unsent transactions
        result.unsent += sum(
            report["events"] - report["acknowledged"] for report in reports if report["state"] == RUNNING
        )
        result.acknowledged, result.alerts_seen = self.total("acknowledged"), self.alerts
        result.offered_rate, result.achieved_rate = self._rates()
        result.generator_cores = sum(
            float(report["cpu_s"]) / float(report["ended_s"]) for report in reports if report["ended_s"]
        )
        result.latency_ms = histograms.percentiles_ms(self.latency)
        result.arrival_ms = histograms.percentiles_ms(self.arrival)
        result.latencies = self.latency.get_total_count()
        result.latency_curve = histograms.curve(self.latency)
        result.slip_ms = histograms.percentiles_ms(self.slip)
        result.seconds = self._by_second()
        return result

    def _rates(self) -> tuple[float, float]:
        plan, reports = self.plan, self.newest.values()
        ended = max((float(report["ended_s"]) for report in reports), default=0.0)
        length = plan.for_s
        if self._profile is None:  # the replayed file may be shorter than the measured time
            length = min(length, max(ended - plan.warm_up_s, 1e-3))
            before = self.total("sent") - self.total("sent_measured")
            offered = self.total("events") - before
        else:
            before = self._profile.due_by(plan.warm_up_s)
            offered = self._profile.events - before
        reached = self.total("acknowledged_at_end") - before
        elapsed = max(length, ended - plan.warm_up_s)
        return offered / length, max(0, reached) / elapsed if ended else 0.0

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
