"""The job as an operator runs it: a child process with settings in its environment."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.local.child import Child
from deploy.local.launch import FRAUD
from streaming_job.runtime.failpoints import VARIABLE, Failpoint

DAEMON = "streaming_job.runtime.workers.daemon"
JVM = "org.apache.spark.deploy.SparkSubmit"
PATIENCE_S = 300.0
"""Time limit for starts, stops and commits on a busy machine, seconds."""


class JobProcess(Child):
    """A `fraud job run` process; a context manager that kills it and all its descendants."""

    def __init__(
        self,
        environment: Mapping[str, str],
        directory: Path,
        *,
        release: Path | None = None,
        command: Sequence[str] = (*FRAUD, "job", "run"),
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
        super().__init__(
            "the job",
            command,
            directory / f"job-{number}.log",
            {**environment, VARIABLE: str(self._crash_points)},
            cwd=release,
        )

    @property
    def error(self) -> str:
        """The last error message that it printed; empty without one."""
        return next((line for line in reversed(self.log.splitlines()) if line.startswith("error: ")), "")

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

    def arm(self, step: Failpoint) -> None:
        """Make the next process that reaches the step hang there."""
        (self._crash_points / step).touch()

    def reached(self, step: Failpoint) -> psutil.Process | None:
        """Return the process that hangs at an armed step; None if none does, or if it was returned before."""
        for path in self._crash_points.glob(f"{step}.*"):
            path.unlink()
            return psutil.Process(int(path.suffix[1:]))
        return None

    def release(self, hanging: psutil.Process) -> None:
        """Let a process that hangs at a step go on."""
        (self._crash_points / f"released.{hanging.pid}").touch()

    def epochs(self) -> int:
        """Return the number of epochs that have ended, from the log."""
        return len(re.findall(r" epoch \d+: \d+ transactions", self.log))


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children())
    return []
