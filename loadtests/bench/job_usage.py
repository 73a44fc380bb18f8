"""What a job takes of its machine: processor time and memory of its process and all that descend from it."""

import time
from contextlib import suppress

import psutil

from deploy.demo import memory


class JobUsage:
    """Measures between the first sample and the last one.

    Processes come and go: each counts with what it had used when it was last seen.
    """

    def __init__(self, pid: int) -> None:
        """Remember.

        Args:
            pid: of the job's process.
        """
        self._pid = pid
        self._first: dict[psutil.Process, float] | None = None
        self._last: dict[psutil.Process, float] = {}
        self._begin = self._end = 0.0
        self.peak_memory = 0
        """Most bytes that `measure_memory` met."""

    def sample(self) -> None:
        """Look at the processor time of every process."""
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
        """Look at the memory of every process, which holds it up for some milliseconds."""
        self.peak_memory = max(self.peak_memory, memory.total([self._pid]))

    def seconds(self) -> float:
        """Processor time."""
        before = self._first or {}
        return sum(seconds - before.get(process, 0.0) for process, seconds in self._last.items())

    def cores(self) -> float:
        """Processor time per second."""
        return self.seconds() / max(self._end - self._begin, 1e-9)
