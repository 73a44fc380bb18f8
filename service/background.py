"""Base class of the sidecar's background threads."""

import threading

STOP_S = 1.0
"""Longest wait for a thread at shutdown; the thread may be blocked by a broker that does not answer."""


class Background:
    """A daemon thread that executes `_run`, which ends once the event `_stop` is set."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and wait for it up to STOP_S."""
        self._stop.set()
        self._thread.join(STOP_S)

    @property
    def has_died(self) -> bool:
        """Whether the thread was started and has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError
