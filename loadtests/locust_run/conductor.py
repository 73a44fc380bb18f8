"""Coordinator of a run, in locust's main process: leads the workers (one lane each) through phases.

    taping -> running -> draining -> settling -> over

`taping`: each lane encodes its transactions into files, its tape. `running`: all lanes start together and
send. `draining`: the job decides the rest, until its lag is 0. `settling`: the last alerts are reported.

Each phase ends on a condition or at a time limit. A run with a silent worker ends within seconds.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.local.files import replace_json
from loadtests.locust_run.collector import Collector
from loadtests.locust_run.lag_samples import LagSamples
from loadtests.locust_run.plan import LoadTestPlan, Share
from loadtests.locust_run.result import Result
from loadtests.locust_run.sending import FLUSH_S, GRACE_S
from loadtests.rig import histograms
from streaming_job.settings import JobSettings

REPORT_S = 1.0
"""Time between two reports of a worker, seconds."""
SILENCE_S = 4.0
"""A worker without a report for this long is lost, seconds."""
LEAD_S = 1.0
"""Time between the order to begin and the start, so that the order reaches every worker, seconds."""
TAPING_S = 600.0
"""Time limit for the tapes of all lanes."""
SETTLE_REPORTS = 2.0
"""Length of the phase `settling` in report intervals, to which half a second is added: enough for the last
alerts to be reported."""
PROGRESS = "progress.json"
Send = Callable[[str, Mapping[str, Any], int], None]
"""Sends a message to a worker: (name of the message, content, lane)."""


class Conductor:
    """The state machine of one run."""

    def __init__(self, plan: LoadTestPlan, lanes: int, settings: JobSettings, send: Send) -> None:
        """Order the workers to prepare."""
        self.plan, self._send = plan, send
        Path(plan.directory).mkdir(parents=True, exist_ok=True)
        self.collector = Collector(plan, lanes)
        self.lag = LagSamples(settings)
        self.lag.start()
        self.phase = "taping"
        self.lost: list[str] = []
        self.fault = ""
        self._lanes = lanes
        self._since = time.monotonic()
        self._sent_at = self._start = 0.0
        self._backlog_at_end: int | None = None
        self._drained_s: float | None = None
        run = int(time.time()) & 0xFFFFFF
        for lane in range(lanes):
            share = asdict(Share(run, lane, lanes))
            send("fraud_prepare", {"plan": plan.to_json(), **share}, lane)

    def lose(self, worker: str, why: str) -> None:
        """Record a lost worker, which ends the run."""
        if self.phase != "over":
            self.lost.append(f"{worker}: {why}")

    def add(self, report: Mapping[str, Any]) -> None:
        """Add a worker's report."""
        self.collector.add(report, time.monotonic())

    def tick(self) -> bool:
        """Check the run and advance its phase; returns False when the run is over."""
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
        if self.lag.fault is not None:
            self.fault = f"the job's lag cannot be read: {self.lag.fault!r}"
        waits_for_reports = self.phase != "taping" or self._waited() > SILENCE_S * 3
        if waits_for_reports and not self.lost:
            for lane in self.collector.silent(time.monotonic(), SILENCE_S):
                self.lose(f"worker {lane}", f"no report for {SILENCE_S:.0f} s")

    def _begin_if_ready(self) -> None:
        if self.collector.is_ready and self.lag.newest is not None:
            start = time.time() + LEAD_S
            self._start = time.monotonic() + LEAD_S
            for lane in range(self._lanes):
                self._send("fraud_begin", {"start_s": start}, lane)
            self._enter("running")
        elif self._waited() > TAPING_S:
            self.fault = f"transactions not encoded, or lag not read, in {TAPING_S:.0f} s; see tape-*.log"

    def _drain_if_sent(self) -> None:
        if self.collector.is_sent:
            self._sent_at = time.monotonic()
            ended = max(float(report["ended_s"]) for report in self.collector.newest.values())
            self._backlog_at_end = self._lag_at(self._start + ended)
            self._enter("draining")
        elif self._waited() > LEAD_S + self.plan.warm_up_s + self.plan.for_s + GRACE_S + FLUSH_S + SILENCE_S:
            self.fault = "sending does not end; see the brokers' and the workers' logs"

    def _settle_if_drained(self) -> None:
        # only samples taken after everything was sent
        after = [at for at, lag in self.lag.samples if lag == 0 and at > self._sent_at]
        if after:
            ended = max(float(report["ended_s"]) for report in self.collector.newest.values())
            self._drained_s = max(0.0, after[0] - self._start - ended)
            self._enter("settling")
        elif self._waited() > self.plan.drain_s:
            self._enter("settling")

    def _lag_at(self, moment: float) -> int | None:
        """Return the first lag sampled at a moment or later, otherwise the newest; None without a sample."""
        later = [lag for at, lag in self.lag.samples if at >= moment]
        return later[0] if later else self.lag.newest

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase, self._since = phase, time.monotonic()

    def _waited(self) -> float:
        return time.monotonic() - self._since

    def _show(self) -> None:
        """Write the progress to a file for the launching process."""
        progress = {
            "phase": self.phase,
            "at_s": max(0.0, time.monotonic() - self._start) if self._start else 0.0,
            "sent": self.collector.total("sent"),
            "alerts": self.collector.alerts,
            "p99_ms": histograms.percentile_ms(self.collector.latency, 99.0),
            "lag": self.lag.newest,
        }
        replace_json(Path(self.plan.directory) / PROGRESS, progress)

    def result(self) -> Result:
        """Return the result; stops sampling the lag."""
        self.lag.stop()
        if self.phase != "over" and not (self.lost or self.fault):
            self.fault = f"the run was stopped in the phase {self.phase}"
        result = self.collector.result()
        result.backlog_at_end, result.drained_s = self._backlog_at_end, self._drained_s
        result.lost_workers, result.fault = self.lost, self.fault
        if self._start:
            result.lag = [
                (round(at - self._start, 3), lag) for at, lag in self.lag.samples if at >= self._start
            ]
        self.collector.close()
        return result
