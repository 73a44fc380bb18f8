"""An answer that is made now and then and shared by all who ask meanwhile."""

import asyncio
import time
from collections.abc import Callable

from fastapi.concurrency import run_in_threadpool

KEPT_S = 0.5


class Shared:
    """Bytes that are made in a thread when somebody asks, at most once in KEPT_S.

    Who asks while they are being made waits for them; so fifty clients cost as much as one.
    """

    def __init__(self, make: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        """Make nothing yet.

        Args:
            make: makes the answer.
            clock: seconds; never goes back.
        """
        self._make = make
        self._clock = clock
        self._lock = asyncio.Lock()
        self._made: tuple[float, bytes] | None = None

    async def get(self) -> bytes:
        """The answer, at most KEPT_S old."""
        made = self._fresh()
        if made is not None:
            return made
        async with self._lock:
            made = self._fresh()
            if made is None:
                made = await run_in_threadpool(self._make)
                self._made = (self._clock(), made)
            return made

    def _fresh(self) -> bytes | None:
        if self._made is None or self._clock() - self._made[0] >= KEPT_S:
            return None
        return self._made[1]
