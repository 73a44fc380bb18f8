"""A thread of the sidecar that works until it is stopped."""

import threading

STOP_S = 1.0
"""How long the sidecar's end waits for a thread: one may be asking a broker that does not answer."""


class Background:
    """Runs `_run` in a daemon thread; that looks at `_stop`, and uses it to wait."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and wait for it, at most STOP_S."""
        self._stop.set()
        self._thread.join(STOP_S)

    @property
    def has_died(self) -> bool:
        """Whether the thread was started and has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError
