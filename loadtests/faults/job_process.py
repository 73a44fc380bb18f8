"""The job as an operator runs it: a process of its own, with settings in its environment."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from loadtests.faults.errors import FaultError
from streaming_job.runtime.failpoints import VARIABLE, Step

DAEMON = "streaming_job.runtime.workers.daemon"
JVM = "org.apache.spark.deploy.SparkSubmit"
PATIENCE_S = 300.0
"""For starts, stops and commits on a machine that is busy with other things."""


class JobProcess:
    """`fraud job run` until it ends or is killed; use as a context manager, nothing of it is left behind."""

    def __init__(
        self, environment: Mapping[str, str], directory: Path, *, release: Path | None = None
    ) -> None:
        """Start it.

        Args:
            environment: the FRAUD_... variables.
            directory: for its log and its armed crash points.
            release: directory of the packages to run; default: those of this process.
        """
        self._crash_points = directory / "crash-points"
        self._crash_points.mkdir(parents=True, exist_ok=True)
        number = len(list(directory.glob("job-*.log")))
        self._log = directory / f"job-{number}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", "job", "run"],
                env={**os.environ, **environment, VARIABLE: str(self._crash_points)},
                cwd=release, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> "JobProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def error(self) -> str:
        """What it told the operator at its end."""
        return next((line for line in reversed(self.log.splitlines()) if line.startswith("error: ")), "")

    def descendants(self) -> list[psutil.Process]:
        """The JVM, Spark's worker daemon and the workers."""
        with suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.process.pid).children(recursive=True))
        return []

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, without the daemons that fork them."""
        return [worker for daemon in self._running(DAEMON) for worker in _children(daemon)]

    def jvm(self) -> psutil.Process | None:
        """Spark's driver; None before it is there."""
        return next(iter(self._running(JVM)), None)

    def _running(self, name: str) -> list[psutil.Process]:
        """Descendants that run a Python module or a class; the children that such a one forks run it, too."""
        found = []
        for process in self.descendants():
            with suppress(psutil.Error):
                if name in " ".join(process.cmdline()).split():  # a forked one's is in one piece
                    found.append(process)
        return found

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and all workers; returns when they are gone."""
        family = self.descendants()
        self._kill_driver()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until_gone(family)

    def kill_driver_only(self) -> list[psutil.Process]:
        """SIGKILL to the driver's Python process alone; returns what it leaves behind."""
        family = self.descendants()
        self._kill_driver()
        return family

    def _kill_driver(self) -> None:
        if self.runs:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def terminate(self) -> int:
        """Ask for a graceful stop and wait for it; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end; returns the exit code."""
        return self.process.wait(PATIENCE_S)

    def arm(self, step: Step) -> None:
        """Let the process that reaches the step next stand still there."""
        (self._crash_points / step).touch()

    def reached(self, step: Step) -> psutil.Process | None:
        """The process that stands still at an armed step; None as long as none does."""
        for path in self._crash_points.glob(f"{step}.*"):
            path.unlink()
            return psutil.Process(int(path.suffix[1:]))
        return None

    def epochs(self) -> int:
        """How many epochs it has logged the end of."""
        return len(re.findall(r" epoch \d+: \d+ transactions", self.log))


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children())
    return []


def wait_until_gone(processes: list[psutil.Process]) -> None:
    """Wait until processes have ended.

    Raises:
        FaultError: they do not.
    """
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    if alive:
        raise FaultError(f"processes still run after {PATIENCE_S:.0f} s: {alive}; kill them")
