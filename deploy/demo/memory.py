"""Memory of the whole demo: all its processes with their children."""

from collections.abc import Callable, Iterable

from deploy.local.processes import memory
from service.background import Background

INTERVAL_S = 2.0


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
            self.now = memory(self._pids())
            self.peak = max(self.peak, self.now)
            self._stop.wait(INTERVAL_S)
