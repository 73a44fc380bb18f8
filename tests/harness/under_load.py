"""A job under load: alerts go on while something is killed; then how long none came, and an audit of all."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from deploy.local.child import Child, stop
from deploy.local.launch import FRAUD
from deploy.local.waiting import Patience
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import PATIENCE_S, JobProcess
from loadtests.rig.watch import AlertWatch, arrival_latencies_us

POLL_S = 0.1


@dataclass
class UnderLoad:
    """An installation whose job decides while transactions are sent."""

    installed: Installation
    job: JobProcess | None = None
    gap_s = 0.0
    """The longest time without an alert under the last load."""

    @contextmanager
    def load(self, rate: int) -> Iterator[AlertWatch]:
        """Send transactions while the context lasts; then print p99 and the longest time without an alert."""
        servers = self.installed.settings.bootstrap_servers
        command = [*FRAUD, "simulate", "--bootstrap-servers", servers]
        # so few cards that most transactions are alerts, by the velocity rules
        command += ["--rate", str(rate), "--seed", "3", "--cards", "300", "--merchants", "100", "--for", "1h"]
        watch = self.installed.watch_alerts()
        feed = Child("the simulator", command, self.installed.directory / "simulator.log")
        try:
            self.until_alerts(watch)
            begin_ms = time.time() * 1e3
            yield watch
        finally:
            stop([feed], 60.0)
        assert self.job is not None
        self.installed.caught_up(self.job)
        seen = [alert for alert in watch.finish() if alert.at_ns > begin_ms * 1e6]
        p99 = np.percentile(arrival_latencies_us(seen, begin_ms), 99) / 1e3
        self.gap_s = max(later.at_ns - earlier.at_ns for earlier, later in pairwise(seen)) / 1e9
        print(
            f"p99 {p99:.0f} ms, longest time without an alert {self.gap_s:.1f} s, {len(seen)} alerts",
            file=sys.stderr,
        )

    def until_alerts(self, watch: AlertWatch, count: int = 20) -> None:
        """Wait for further alerts."""
        patience, before = Patience(PATIENCE_S, POLL_S), len(watch.seen)
        while (seen := len(watch.seen)) < before + count:
            watch.check()
            patience.wait(lambda: AssertionError("no alerts"), seen)

    def audit(self) -> None:
        """Check that the job's output is what the oracle computes, and that all records were audited."""
        verdict = self.installed.verdict()
        assert verdict.is_clean, verdict.report()
        assert verdict.events == self.installed.count(self.installed.topics.transactions) > 0
