"""Base class of background threads: of the sidecar's, of the tools' and of the demo's."""

import threading
from typing import Self

from feature_store.errors import FraudError

STOP_S = 1.0
"""Longest wait for a sidecar's thread at shutdown; it may be blocked by a broker that does not answer."""


class Background:
    """A daemon thread that executes `_run`, which ends once the event `_stop` is set; a context manager."""

    def __init__(self, name: str, patience_s: float | None = STOP_S) -> None:
        """Prepare the thread without starting it.

        Args:
            patience_s: longest wait in `stop`; None: until the thread has ended.
        """
        self._stop, self._patience_s = threading.Event(), patience_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and wait for it."""
        self._stop.set()
        self._thread.join(self._patience_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def has_ended(self) -> bool:
        """Whether the thread was started and has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError


def text_of(error: Exception) -> str:
    """Return an error's message; with its class unless it is a FraudError, as it may say nothing without."""
    return str(error) if isinstance(error, FraudError) else f"{type(error).__name__}: {error}"
