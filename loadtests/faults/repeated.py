"""Something that is done all the time, from a thread of its own: transactions flow."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from loadtests.faults.errors import FaultError


class Repeated:
    """Does one thing again and again; use as a context manager, which tells at its end if that has failed."""

    def __init__(self, action: Callable[[], None], every_s: float, what: str) -> None:
        """Start nothing yet.

        Args:
            action: what is done.
            every_s: between the end of one and the beginning of the next, seconds.
            what: for the error, "transactions are no longer sent".
        """
        self._action, self._every_s, self._what = action, every_s, what
        self._stop = threading.Event()
        self._acting = threading.Lock()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=what)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self.check()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is done meanwhile.

        Raises:
            FaultError: it has failed.
        """
        with self._acting:
            self.check()
            yield

    def check(self) -> None:
        """See that it is still done.

        Raises:
            FaultError: it has failed.
        """
        if self._fault is not None:
            raise FaultError(f"{self._what}: {self._fault}") from self._fault

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            with self._acting:
                try:
                    self._action()
                except Exception as fault:
                    self._fault = fault
                    return
