"""One worker's share of a run: its tape, its sender, its reader of alerts, and what they found so far."""

import gc
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.faults.installation import PARTITIONERS
from loadtests.locust_run import histograms, identity
from loadtests.locust_run.alert_watch import AlertWatch, Seen
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.plan import Plan, Share
from loadtests.locust_run.sender import Sender
from loadtests.locust_run.tape import Tape
from loadtests.locust_run.transactions import events_of
from streaming_job.settings import JobSettings

TAPING, READY, RUNNING, SENT, FAILED = "taping", "ready", "running", "sent", "failed"
SWITCH_S = 0.0005
"""Longest that another thread keeps Python's lock from the sender; Python's own 5 ms are the whole bound."""


@dataclass
class Gathered:
    """What was found since the last report."""

    latency: Any = field(default_factory=histograms.empty)
    """HdrHistogram, microseconds from intended time to the alert; warm-up left out."""
    slip: Any = field(default_factory=histograms.empty)
    """HdrHistogram, microseconds from intended time to sending; warm-up left out."""
    alerts: int = 0
    """With those of the warm-up."""


class Lane:
    """Runs in a locust worker; called from its greenlets only."""

    def __init__(self, plan: Plan, share: Share, settings: JobSettings) -> None:
        """Begin to encode.

        Args:
            plan: of the run.
            share: which events are this worker's.
            settings: of the job: addresses, security, topics.
        """
        self.plan, self.share = plan, share
        self.state, self.error = TAPING, ""
        self._warm_up_us = int(plan.warm_up_s * 1e6)
        self._start_ns = 0
        self._gathered = Gathered()
        client = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
        self._tape = Tape(Path(plan.directory).resolve() / f"tape-{share.lane}")
        self._tape.start(plan, share, int(time.time() * 1000))
        self._watch = AlertWatch(client, settings.topics.fraud_alerts, identity.prefix(share))
        self._sender = Sender(
            {**client, "partitioner": PARTITIONERS[settings.partitioner]},
            settings.topics.transactions,
            self._tape,
            events=events_of(plan, share),
            end_s=plan.warm_up_s + plan.for_s,
            measured_from_us=self._warm_up_us,
        )

    def check(self) -> None:
        """Go on to the next state if it is time; a fault becomes the state `failed`."""
        try:
            self._watch.check()
            self._sender.check()
            if self.state == TAPING and self._tape.is_ready():
                self.state = READY
            if self.state == RUNNING and self._sender.thread.ended:
                self.state = SENT
        except LoadTestError as fault:
            self.state, self.error = FAILED, str(fault)

    def begin(self, start_s: float) -> None:
        """Send from a moment on, seconds since 1970-01-01 UTC: all lanes are given the same."""
        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()  # what lives as long as the run is not walked again
        now_s, now_ns = time.time(), time.monotonic_ns()
        self._start_ns = now_ns + int((start_s - now_s) * 1e9)
        self._watch.start()
        self._sender.begin(self._start_ns, int(start_s * 1e6))
        self.state = RUNNING

    def take_alerts(self) -> list[tuple[float, int]]:
        """(latency in ms, bytes) of each alert seen since the last call; they are in the next report, too."""
        found: list[Seen] = []
        while self._watch.seen:
            found.append(self._watch.seen.popleft())
        latencies = [(seen.at_ns - self._start_ns) // 1_000 - seen.due_us for seen in found]
        measured = [us for us, seen in zip(latencies, found, strict=True) if seen.due_us >= self._warm_up_us]
        histograms.record(self._gathered.latency, np.array(measured, dtype=np.int64))
        self._gathered.alerts += len(found)
        return [(us / 1_000, seen.size) for us, seen in zip(latencies, found, strict=True)]

    def report(self) -> dict[str, Any]:
        """State and totals of this lane, and what was found since the last report; for msgpack."""
        self.check()
        self.take_alerts()
        self._take_slips()
        gathered, self._gathered = self._gathered, Gathered()
        sender = self._sender
        return {
            "lane": self.share.lane,
            "state": self.state,
            "error": self.error or sender.error or "",
            "at_s": (time.monotonic_ns() - self._start_ns) / 1e9 if self._start_ns else 0.0,
            "events": sender.events,
            "sent": sender.sent,
            "sent_measured": sender.sent_measured,
            "acknowledged": sender.acknowledged,
            "acknowledged_at_end": sender.acknowledged_at_end,
            "ended_s": sender.ended_us / 1e6,
            "cpu_s": sender.cpu_s if sender.ended_us else 0.0,
            "unsent": sender.unsent,
            "alerts": gathered.alerts,
            "latency": gathered.latency.encode(),
            "slip": gathered.slip.encode(),
        }

    def _take_slips(self) -> None:
        taken = []
        while self._sender.slips:
            taken.append(self._sender.slips.popleft())
        if taken:
            # ten microseconds are precise enough, and few different values are fast to record
            histograms.record(self._gathered.slip, np.concatenate(taken) // 10 * 10)

    def stop(self) -> None:
        """End the threads and the tape; returns at once."""
        self._sender.thread.stop()
        self._watch.thread.stop()
        self._tape.stop()
