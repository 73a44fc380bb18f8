"""Leads a run from the master: lanes encode, all begin at one moment, send, and the job's lag drains.

    waiting -> taping -> running -> draining -> settling -> over

Each step has a condition and a limit of time; a worker that falls silent ends the run within seconds.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtests.locust_run import histograms
from loadtests.locust_run.collector import Collector
from loadtests.locust_run.lag_samples import LagSamples
from loadtests.locust_run.plan import Plan, Share
from loadtests.locust_run.result import Result
from loadtests.locust_run.sender import FLUSH_S, GRACE_S
from streaming_job.settings import JobSettings

REPORT_S = 1.0
"""Between two reports of a worker."""
SILENCE_S = 4.0
"""Without a report for so long, a worker that runs is lost."""
LEAD_S = 1.0
"""From the order to begin to the start: it reaches every worker before."""
TAPING_S = 600.0
SETTLE_REPORTS = 2.0
"""Reports of each worker after the lag was 0: the alerts committed last are among them."""
PROGRESS = "progress.json"
Send = Callable[[str, Mapping[str, Any], int], None]
"""(message, content, lane)."""


class Conductor:
    """State of one run."""

    def __init__(
        self,
        plan: Plan,
        lanes: int,
        settings: JobSettings,
        send: Send,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell the workers to prepare.

        Args:
            plan: of the run.
            lanes: workers.
            settings: of the job.
            send: sends a message to the worker of a lane.
            now: seconds of a clock that only goes on.

        Raises:
            LoadTestError: the topics cannot be read.
        """
        self.plan, self._send, self._now = plan, send, now
        Path(plan.directory).mkdir(parents=True, exist_ok=True)
        self.collector = Collector(plan, lanes)
        self.lag = LagSamples(settings)
        self.lag.start()
        self.phase = "taping"
        self.lost: list[str] = []
        self.fault = ""
        self._lanes = lanes
        self._begun = self._since = now()
        self._sent_at = self._start = 0.0
        self._backlog_at_end: int | None = None
        self._drained_s: float | None = None
        run = int(time.time()) & 0xFFFFFF
        for lane in range(lanes):
            share = asdict(Share(run, lane, lanes))
            send("fraud_prepare", {"plan": plan.to_json(), **share}, lane)

    def lose(self, worker: str, why: str) -> None:
        """Note that a worker is gone: the run cannot be what it was to be."""
        if self.phase != "over":
            self.lost.append(f"{worker}: {why}")

    def add(self, report: Mapping[str, Any]) -> None:
        """Take a worker's report."""
        self.collector.add(report, self._now())

    def tick(self) -> bool:
        """Look at everything and go on; False when the run is over."""
        if self.phase != "over":
            self._look_for_faults()
        if self.fault or self.lost:
            self._enter("over")
        elif self.phase == "taping":
            self._begin_if_ready()
        elif self.phase == "running":
            self._drain_if_sent()
        elif self.phase == "draining":
            self._settle_if_drained()
        elif self.phase == "settling" and self._waited() > SETTLE_REPORTS * REPORT_S + 0.5:
            self._enter("over")
        self._show()
        return self.phase != "over"

    def _look_for_faults(self) -> None:
        faults = self.collector.faults()
        if faults:
            self.fault = "; ".join(faults)
        if self.lag.thread.fault is not None:
            self.fault = f"the job's lag cannot be read: {self.lag.thread.fault!r}"
        waits_for_reports = self.phase != "taping" or self._waited() > SILENCE_S * 3
        if waits_for_reports and not self.lost:
            for lane in self.collector.silent(self._now(), SILENCE_S):
                self.lose(f"worker {lane}", f"no report for {SILENCE_S:.0f} s")

    def _begin_if_ready(self) -> None:
        if self.collector.is_ready and self.lag.newest is not None:
            start = time.time() + LEAD_S
            self._start = self._now() + LEAD_S
            for lane in range(self._lanes):
                self._send("fraud_begin", {"start_s": start}, lane)
            self._enter("running")
        elif self._waited() > TAPING_S:
            self.fault = f"transactions were not encoded in {TAPING_S:.0f} s; see tape-*.log"

    def _drain_if_sent(self) -> None:
        if self.collector.is_sent:
            self._sent_at = self._now()
            ended = max(float(report["ended_s"]) for report in self.collector.newest.values())
            self._backlog_at_end = self._lag_at(self._start + ended)
            self._enter("draining")
        elif self._waited() > LEAD_S + self.plan.warm_up_s + self.plan.for_s + GRACE_S + FLUSH_S + SILENCE_S:
            self.fault = "sending does not end; look at the brokers and the workers' logs"

    def _settle_if_drained(self) -> None:
        # asked for after everything was sent
        after = [at for at, lag in self.lag.samples if lag == 0 and at > self._sent_at]
        if after:
            ended = max(float(report["ended_s"]) for report in self.collector.newest.values())
            self._drained_s = max(0.0, after[0] - self._start - ended)
            self._enter("settling")
        elif self._waited() > self.plan.drain_s:
            self._enter("settling")

    def _lag_at(self, moment: float) -> int | None:
        """The first lag that was asked for at a moment or later; otherwise the newest."""
        later = [lag for at, lag in self.lag.samples if at >= moment]
        return later[0] if later else self.lag.newest

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase, self._since = phase, self._now()

    def _waited(self) -> float:
        return self._now() - self._since

    def _show(self) -> None:
        """Write what is going on for whoever waits outside."""
        p99 = histograms.percentile_ms(self.collector.latency, 99.0)
        shown = {
            "phase": self.phase,
            "at_s": max(0.0, self._now() - self._start) if self._start else 0.0,
            "sent": self.collector.total("sent"),
            "alerts": self.collector.alerts,
            "p99_ms": p99,
            "lag": self.lag.newest,
        }
        partial = Path(self.plan.directory) / f"{PROGRESS}.partial"
        partial.write_text(json.dumps(shown))
        partial.rename(partial.with_name(PROGRESS))

    def result(self) -> Result:
        """What was measured; ends the sampling of the lag."""
        self.lag.thread.stop()
        if self.phase != "over" and not (self.lost or self.fault):
            self.fault = f"it was stopped while {self.phase}"
        found = self.collector.result()
        found.backlog_at_end, found.drained_s = self._backlog_at_end, self._drained_s
        found.lost_workers, found.fault = self.lost, self.fault
        if self._start:
            found.lag = [
                (round(at - self._start, 3), lag) for at, lag in self.lag.samples if at >= self._start
            ]
        self.collector.close()
        return found
