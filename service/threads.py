"""Threads of their own for requests that may take long, so that they cannot stall other requests.

FastAPI runs all plain endpoints of an application in one pool of 40 threads. If reads of a broker or of the
registry filled it, a rollback would wait for them.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from service.security.problems import Problem

T = TypeVar("T")


class Threads:
    """A number of threads; a request that finds all of them busy is refused at once."""

    def __init__(self, most: int) -> None:
        """Allow so many requests at the same time."""
        self._most, self._busy = most, 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread, and return its result; raises its errors.

        Raises:
            Problem: all threads are busy (503).
        """
        if self._busy >= self._most:  # only the event loop's thread changes the number
            raise Problem(
                503,
                "busy",
                f"{self._most} such requests are running; retry in a moment",
                {"Retry-After": "1"},
            )
        self._busy += 1
        try:
            return await to_thread.run_sync(work, limiter=CapacityLimiter(1))
        finally:
            self._busy -= 1
