"""Starts locust's processes for one run, waits for them, and reads what they leave."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from loadtests.locust_run.conductor import PROGRESS, TAPING_S
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.plan import Plan
from loadtests.locust_run.result import FILE, Result
from streaming_job.settings import JobSettings

LOCUSTFILE = Path(__file__).parents[1] / "locustfile.py"
POLL_S = 0.25
STOP_S = 15.0
SLACK_S = 120.0
Say = Callable[[str], None]


class LocustProcesses:
    """One locust, or a master and its workers; use as a context manager: all are ended with it."""

    def __init__(self, plan: Plan, settings: JobSettings, workers: int, web_port: int | None = None) -> None:
        """Start them.

        Args:
            plan: of the run; its directory is emptied.
            settings: of the job.
            workers: 1: one process that is everything.
            web_port: of locust's web UI; None: headless.
        """
        directory = Path(plan.directory).resolve()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.plan = replace(plan, directory=str(directory))
        self.directory = directory
        self._environment = {**os.environ, **settings.variables()}
        self.workers: list[subprocess.Popen[bytes]] = []
        face = ["--headless"] if web_port is None else [
            "--web-host", "127.0.0.1", "--web-port", str(web_port), "--autostart", "--autoquit", "1",
        ]  # fmt: skip
        if workers == 1:
            self.main = self._spawn("locust", [*face, *options(self.plan)])
            self.workers = [self.main]
            return
        port = _free_port()
        bind = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port)]
        expected = ["--expect-workers", str(workers), "--expect-workers-max-wait", "60"]
        self.main = self._spawn("master", [*face, *bind, *expected, *options(self.plan)])
        joined = ["--worker", "--master-host", "127.0.0.1", "--master-port", str(port)]
        self.workers = [self._spawn(f"worker-{number}", joined) for number in range(workers)]

    def _spawn(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--only-summary", *arguments],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __enter__(self) -> "LocustProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        everyone = {process.pid: process for process in (self.main, *self.workers)}
        for process in everyone.values():
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_S
        for process in everyone.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for tape in self.directory.glob("tape-*"):
            if tape.is_dir():
                shutil.rmtree(tape, ignore_errors=True)

    def progress(self) -> dict[str, Any]:
        """What the run says of itself; empty before it begins."""
        try:
            found: dict[str, Any] = json.loads((self.directory / PROGRESS).read_text())
        except FileNotFoundError:
            return {}
        return found

    def wait(self, say: Say = lambda _: None) -> Result:
        """Wait for the end of the run.

        Args:
            say: is told how far it is.

        Raises:
            LoadTestError: it left no result, or took far longer than it was to.
        """
        plan = self.plan
        limit = TAPING_S + plan.warm_up_s + plan.for_s + plan.drain_s + SLACK_S
        end = time.monotonic() + limit
        while self.main.poll() is None:
            if time.monotonic() > end:
                raise LoadTestError(f"locust does not end after {limit:.0f} s; see {self.directory}")
            if shown := self.progress():
                say(words(shown))
            time.sleep(POLL_S)
        if not (self.directory / FILE).exists():
            logs = " and ".join(str(path) for path in sorted(self.directory.glob("*.log")))
            raise LoadTestError(f"locust ended with {self.main.returncode} and left no result; see {logs}")
        return Result.read(self.directory)


def run(
    plan: Plan,
    settings: JobSettings,
    *,
    workers: int = 1,
    web_port: int | None = None,
    say: Say = lambda _: None,
) -> Result:
    """Run a load test on a job that runs.

    Raises:
        LoadTestError: it left no result.
    """
    with LocustProcesses(plan, settings, workers, web_port) as processes:
        return processes.wait(say)


def options(plan: Plan) -> list[str]:
    """A plan as locust's options."""
    found = []
    for field in fields(Plan):
        found.append(f"--tx-{field.name.replace('_', '-')}={getattr(plan, field.name)}")
    return found


def words(shown: dict[str, Any]) -> str:
    """A line for people of what a run says of itself."""
    p99 = "" if shown.get("p99_ms") is None else f", p99 {shown['p99_ms']:,.1f} ms"
    lag = "" if shown.get("lag") is None else f", lag {shown['lag']:,}"
    counts = f"{shown['sent']:,} sent, {shown['alerts']:,} alerts"
    return f"{shown['phase']} {shown['at_s']:.0f} s: {counts}{p99}{lag}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
