"""CPU time and memory of a job's process and its descendants."""

import time
from contextlib import suppress

import psutil

from deploy.local import processes


class JobUsage:
    """Measures the usage between the first and the last sample.

    A process that ends counts with its usage at the last sample that saw it.
    """

    def __init__(self, pid: int) -> None:
        """Measure nothing yet."""
        self._pid = pid
        self._first: dict[psutil.Process, float] | None = None
        self._last: dict[psutil.Process, float] = {}
        self._begin = self._end = 0.0
        self.peak_memory = 0
        """Maximum over all calls of `measure_memory`, bytes."""

    def sample(self) -> None:
        """Sample the CPU time of every process."""
        used = {}
        with suppress(psutil.Error):
            job = psutil.Process(self._pid)
            for process in (job, *job.children(recursive=True)):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    used[process] = times.user + times.system
        self._last |= used
        self._end = time.monotonic()
        if self._first is None:
            self._first, self._begin = used, self._end

    def measure_memory(self) -> None:
        """Measure the memory of every process, which pauses each for a few milliseconds."""
        self.peak_memory = max(self.peak_memory, processes.memory([self._pid]))

    def seconds(self) -> float:
        """Return the CPU time between the first and the last sample, seconds."""
        before = self._first or {}
        return sum(seconds - before.get(process, 0.0) for process, seconds in self._last.items())

    def cores(self) -> float:
        """Return the CPU time per second."""
        return self.seconds() / max(self._end - self._begin, 1e-9)
