"""A lane, one worker's share of a run: its tape (encoded transactions), sender and alert reader."""

import gc
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from feature_store.errors import FraudError
from loadtests.faults.record_producer import PARTITIONERS
from loadtests.locust_run import identity
from loadtests.locust_run.plan import LoadTestPlan, Share
from loadtests.locust_run.sending import Sending
from loadtests.locust_run.tape import Tape
from loadtests.locust_run.transactions import events_of
from loadtests.rig import histograms
from loadtests.rig.pace import SteadyClock
from loadtests.rig.watch import AlertWatch, latency_us
from streaming_job.settings import JobSettings

TAPING, READY, RUNNING, SENT, FAILED = "taping", "ready", "running", "sent", "failed"
PRIORITY = -10
"""Niceness of the worker's threads, where the system permits it: the load generator stands for another
machine, which the system under test could not slow down."""


@dataclass
class SinceReport:
    """Measurements since the last report."""

    latency: Any = field(default_factory=histograms.empty)
    """HdrHistogram, microseconds from intended sending to the alert, without the warm-up."""
    arrival: Any = field(default_factory=histograms.empty)
    """HdrHistogram, microseconds from the transaction's arrival to the alert, without the warm-up."""
    slip: Any = field(default_factory=histograms.empty)
    """HdrHistogram, microseconds from intended to actual sending, with the warm-up."""
    alerts: int = 0
    """Number of alerts, with those of the warm-up."""


class Lane:
    """A lane in a locust worker; called only from the worker's greenlets."""

    def __init__(self, plan: LoadTestPlan, share: Share, settings: JobSettings) -> None:
        """Start to encode the transactions."""
        self.plan, self.share = plan, share
        self.state, self.error = TAPING, ""
        self._warm_up_us = int(plan.warm_up_s * 1e6)
        self._clock = SteadyClock()
        self._start_ms = 0
        self._since_report = SinceReport()
        self._tape = Tape(Path(plan.directory).resolve() / f"tape-{share.lane}", settings.topics.transactions)
        self._tape.start(plan, share, int(time.time() * 1000))
        with suppress(PermissionError):  # only root may do this; new threads inherit the priority
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
        self._watch = AlertWatch(settings, settings.topics.fraud_alerts, clock_ns=self._clock.now_ns)
        self._prefix = identity.prefix(share)
        self._sending = Sending(
            settings,
            PARTITIONERS[settings.partitioner],
            self._tape,
            self._clock,
            events=events_of(plan, share),
            end_s=plan.warm_up_s + plan.for_s,
            measured_from_s=plan.warm_up_s,
        )

    def check(self) -> None:
        """Advance the state if the condition of the next state holds; an error becomes the state `failed`."""
        try:
            self._watch.check()
            self._sending.check()
            if self.state == TAPING and self._tape.is_ready():
                self._sending.prepare()
                gc.collect()
                gc.freeze()  # objects that live as long as the run are not traversed again
                self.state = READY
            if self.state == RUNNING and self._sending.thread.ended:
                self.state = SENT
        except FraudError as fault:
            self.state, self.error = FAILED, str(fault)

    def begin(self, start_s: float) -> None:
        """Start to send at a moment, seconds since 1970-01-01 UTC, the same for all lanes."""
        self._start_ms = round(start_s * 1_000)
        self._watch.start()
        self._sending.begin(self._start_ms)
        self.state = RUNNING

    def take_alerts(self) -> list[tuple[float, int]]:
        """Return (latency in ms, bytes) of each new alert, and add it to the next report."""
        latencies: list[tuple[int, int]] = []
        measured: list[int] = []
        arrived: list[int] = []
        for value, at_ns in self._watch.take():
            alert = orjson.loads(value)
            sent = identity.decode(alert["transaction_id"], self._prefix)
            if sent is None:  # another lane's
                continue
            since_due_us = latency_us(self._start_ms, at_ns) - sent.due_us
            latencies.append((since_due_us, len(value)))
            if sent.due_us >= self._warm_up_us:
                measured.append(since_due_us)
                if alert["arrival_time"] >= self._start_ms:
                    arrived.append(latency_us(alert["arrival_time"], at_ns))
        report = self._since_report
        histograms.record(report.latency, np.array(measured, dtype=np.int64))
        histograms.record(report.arrival, np.array(arrived, dtype=np.int64))
        report.alerts += len(latencies)
        return [(us / 1_000, size) for us, size in latencies]

    def report(self) -> dict[str, Any]:
        """Return the lane's state and totals, and measurements since the last report, in msgpack's types."""
        self.check()
        self.take_alerts()
        self._sending.slips.record_into(self._since_report.slip)
        measured, self._since_report = self._since_report, SinceReport()
        sending = self._sending
        return {
            "lane": self.share.lane,
            "state": self.state,
            "error": self.error or sending.error,
            "at_s": (self._clock.now_ms() - self._start_ms) / 1_000 if self._start_ms else 0.0,
            "events": sending.events,
            "sent": sending.sent,
            "sent_measured": sending.sent_measured,
            "acknowledged": sending.acknowledged,
            "acknowledged_at_end": sending.acknowledged_at_end,
            "ended_s": sending.ended_s,
            "cpu_s": sending.cpu_s if sending.ended_s else 0.0,
            "unsent": sending.unsent,
            "alerts": measured.alerts,
            "latency": measured.latency.encode(),
            "arrival": measured.arrival.encode(),
            "slip": measured.slip.encode(),
        }

    def stop(self) -> None:
        """Stop the threads and the tape; returns at once."""
        self._sending.stop()
        self._watch.stop()
        self._tape.stop()
