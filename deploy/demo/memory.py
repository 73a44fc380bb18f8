"""Memory of the whole demo: all its processes with their children; on Linux, shared pages count once."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from service.background import Background

INTERVAL_S = 2.0


def proportional(process: psutil.Process) -> int:
    """Measure the proportional set size of a process, bytes; outside Linux its resident set size.

    Returns:
        The size; 0 if the process has ended.
    """
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def total(pids: Iterable[int]) -> int:
    """Measure the memory of processes and all their descendants, bytes."""
    family: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            family |= {member.pid: member for member in (process, *process.children(recursive=True))}
    return sum(proportional(member) for member in family.values())


class MemorySampler(Background):
    """Background thread that measures memory every two seconds and keeps the peak."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        super().__init__("memory-sampler", patience_s=None)
        self._pids = pids
        self.now = 0
        """Bytes at the last measurement."""
        self.peak = 0
        """Greatest measurement, bytes."""

    def _run(self) -> None:
        while not self._stop.is_set():
            self.now = total(self._pids())
            self.peak = max(self.peak, self.now)
            self._stop.wait(INTERVAL_S)
