"""Launcher of locust's processes for one run: starts them, waits, and reads the result."""

import json
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from deploy.local.child import Child, stop
from deploy.local.ports import free_port
from deploy.local.waiting import Patience
from loadtests.locust_run.conductor import PROGRESS, TAPING_S
from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.result import FILE, Result
from loadtests.rig.report import Say
from streaming_job.settings import JobSettings

LOCUSTFILE = Path(__file__).parents[1] / "locustfile.py"
POLL_S = 0.25
STOP_S = 15.0
SLACK_S = 120.0


class LocustProcesses:
    """A single locust process, or a master and its workers; a context manager that stops them all."""

    def __init__(
        self, plan: LoadTestPlan, settings: JobSettings, workers: int, web_port: int | None = None
    ) -> None:
        """Start the processes.

        Args:
            plan: plan of the run; its directory is emptied.
            web_port: port of locust's web UI; None: headless.
        """
        directory = Path(plan.directory).resolve()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.plan = replace(plan, directory=str(directory))
        self.directory = directory
        self._environment = settings.variables()
        self.workers: list[Child] = []
        interface = ["--headless"] if web_port is None else [
            "--web-host", "127.0.0.1", "--web-port", str(web_port), "--autostart", "--autoquit", "1",
        ]  # fmt: skip
        if workers == 1:
            self.main = self._spawn("locust", [*interface, *options(self.plan)])
            self.workers = [self.main]
            return
        port = free_port()
        bind = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port)]
        expected = ["--expect-workers", str(workers), "--expect-workers-max-wait", "60"]
        self.main = self._spawn("master", [*interface, *bind, *expected, *options(self.plan)])
        join = ["--worker", "--master-host", "127.0.0.1", "--master-port", str(port)]
        self.workers = [self._spawn(f"worker-{number}", join) for number in range(workers)]

    def _spawn(self, name: str, arguments: list[str]) -> Child:
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--only-summary", *arguments]
        log = self.directory / f"{name}.log"
        # as part of this session the processes get the terminal's signals, and so end with it
        return Child(f"locust's {name}", command, log, self._environment, own_session=False)

    def __enter__(self) -> "LocustProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        stop(list(dict.fromkeys((self.main, *self.workers))), STOP_S)
        for tape in self.directory.glob("tape-*"):
            if tape.is_dir():
                shutil.rmtree(tape, ignore_errors=True)

    def progress(self) -> dict[str, Any]:
        """Return the run's progress; empty before it begins."""
        try:
            progress: dict[str, Any] = json.loads((self.directory / PROGRESS).read_text())
        except FileNotFoundError:
            return {}
        return progress

    def wait(self, say: Say = lambda _: None) -> Result:
        """Wait for the end of the run.

        Raises:
            LoadTestError: there is no result, or the run took far longer than planned.
        """
        plan = self.plan
        limit = TAPING_S + plan.warm_up_s + plan.for_s + plan.drain_s + SLACK_S
        patience = Patience(limit, POLL_S)
        while self.main.runs:
            if progress := self.progress():
                say(status_line(progress))
            patience.wait(
                lambda: LoadTestError(f"locust does not end after {limit:.0f} s; see {self.directory}")
            )
        if not (self.directory / FILE).exists():
            logs = " and ".join(str(path) for path in sorted(self.directory.glob("*.log")))
            raise LoadTestError(f"locust had exit code {self.main.ended_with} and no result; see {logs}")
        return Result.read(self.directory)


def run(
    plan: LoadTestPlan,
    settings: JobSettings,
    *,
    workers: int = 1,
    web_port: int | None = None,
    say: Say = lambda _: None,
) -> Result:
    """Run a load test on a running job."""
    with LocustProcesses(plan, settings, workers, web_port) as processes:
        return processes.wait(say)


def options(plan: LoadTestPlan) -> list[str]:
    """Return a plan as locust's options."""
    names = (field.name for field in fields(plan))
    return [f"--tx-{name.replace('_', '-')}={getattr(plan, name)}" for name in names]


def status_line(progress: dict[str, Any]) -> str:
    """Return a run's progress as a text line."""
    p99 = "" if progress.get("p99_ms") is None else f", p99 {progress['p99_ms']:,.1f} ms"
    lag = "" if progress.get("lag") is None else f", lag {progress['lag']:,}"
    counts = f"{progress['sent']:,} sent, {progress['alerts']:,} alerts"
    return f"{progress['phase']} {progress['at_s']:.0f} s: {counts}{p99}{lag}"
