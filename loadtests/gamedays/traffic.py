"""Transactions that flow all the time, from a thread of their own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loadtests.faults.errors import FaultError
from loadtests.faults.installation import Installation

EVERY_S = 0.25
EVENTS = 20
"""So many transactions every EVERY_S."""
CLEAN = {"late": 0.0, "out_of_order": 0.0, "future": 0.0, "malformed": 0.0, "duplicated": 0.0}


class Traffic:
    """Simulated transactions; use as a context manager.

    Args:
        installed: where they go.
    """

    def __init__(self, installed: Installation) -> None:
        self._installed = installed
        self._stop = threading.Event()
        self._sending = threading.Lock()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.disturbances: dict[str, float] = {}
        """Shares of the transactions to which something happens."""
        self.also: Callable[[], None] | None = None
        """Sends something else each time, as another sender would."""

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is sent meanwhile.

        Raises:
            FaultError: sending has failed.
        """
        with self._sending:
            self.check()
            yield

    def check(self) -> None:
        """See that transactions flow.

        Raises:
            FaultError: sending has failed.
        """
        if self._fault is not None:
            raise FaultError(f"transactions are no longer sent: {self._fault}") from self._fault

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            with self._sending:
                try:
                    self._installed.send(EVENTS, **(CLEAN | self.disturbances))
                    if self.also is not None:
                        self.also()
                except Exception as fault:
                    self._fault = fault
                    return
