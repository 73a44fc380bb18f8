"""The job as an operator runs it: a child process with settings in its environment."""

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
"""Time limit for starts, stops and commits on a busy machine, seconds."""


class JobProcess:
    """A `fraud job run` process; a context manager that kills it and all its descendants."""

    def __init__(
        self, environment: Mapping[str, str], directory: Path, *, release: Path | None = None
    ) -> None:
        """Start the job.

        Args:
            environment: the FRAUD_... variables.
            directory: gets its log and its armed crash points.
            release: directory of a release, whose packages run; default: the packages of this process.
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
        """Its output so far."""
        return self._log.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def error(self) -> str:
        """The last error message that it printed; empty without one."""
        return next((line for line in reversed(self.log.splitlines()) if line.startswith("error: ")), "")

    def descendants(self) -> list[psutil.Process]:
        """Return the JVM, Spark's worker daemon, the workers and the residents."""
        with suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.process.pid).children(recursive=True))
        return []

    def workers(self) -> list[psutil.Process]:
        """Return Spark's Python workers and the residents, without the daemon that forks them."""
        return [worker for daemon in self._running(DAEMON) for worker in _children(daemon)]

    def jvm(self) -> psutil.Process | None:
        """Return Spark's driver JVM; None before it has started."""
        return next(iter(self._running(JVM)), None)

    def _running(self, name: str) -> list[psutil.Process]:
        """Return descendants with `name`, a module or class, in their command lines; forked ones included."""
        matches = []
        for process in self.descendants():
            with suppress(psutil.Error):
                # a forked process has its command line in one string
                if name in " ".join(process.cmdline()).split():
                    matches.append(process)
        return matches

    def kill(self) -> None:
        """Kill the driver and all its descendants with SIGKILL, and wait until they have ended."""
        family = self.descendants()
        self._kill_driver()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until_gone(family)

    def kill_driver_only(self) -> list[psutil.Process]:
        """Kill only the driver's Python process with SIGKILL; returns the processes that it leaves behind."""
        family = self.descendants()
        self._kill_driver()
        return family

    def _kill_driver(self) -> None:
        if self.runs:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def terminate(self) -> int:
        """Stop the job gracefully with SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait until the process ends; returns its exit code."""
        return self.process.wait(PATIENCE_S)

    def arm(self, step: Step) -> None:
        """Make the next process that reaches the step hang there."""
        (self._crash_points / step).touch()

    def reached(self, step: Step) -> psutil.Process | None:
        """Return the process that hangs at an armed step; None if none does, or if it was returned before."""
        for path in self._crash_points.glob(f"{step}.*"):
            path.unlink()
            return psutil.Process(int(path.suffix[1:]))
        return None

    def epochs(self) -> int:
        """Return the number of epochs that have ended, from the log."""
        return len(re.findall(r" epoch \d+: \d+ transactions", self.log))


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children())
    return []


def wait_until_gone(processes: list[psutil.Process]) -> None:
    """Wait until processes have ended.

    Raises:
        FaultError: some still run.
    """
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    if alive:
        raise FaultError(f"processes still run after {PATIENCE_S:.0f} s: {alive}; kill them")
