"""Background thread that sends a few transactions again and again, without a schedule."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loadtests.faults.errors import FaultError
from service.background import Background


class Repeater(Background):
    """Thread that sends transactions repeatedly; leaving its context raises if sending failed."""

    def __init__(self, send: Callable[[], None], every_s: float) -> None:
        super().__init__("transactions", patience_s=None)
        self._send, self._every_s = send, every_s
        self._sending = threading.Lock()
        self._fault: Exception | None = None

    def __exit__(self, *failure: object) -> None:
        super().__exit__()
        if not any(failure):
            self.check()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause sending within the context."""
        with self._sending:
            self.check()
            yield

    def check(self) -> None:
        """Raise FaultError if sending has failed."""
        if self._fault is not None:
            raise FaultError(f"transactions are no longer sent: {self._fault}") from self._fault

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            with self._sending:
                try:
                    self._send()
                except Exception as fault:
                    self._fault = fault
                    return
