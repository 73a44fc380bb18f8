"""A short-lived cache of one answer, shared by concurrent requests."""

import asyncio
import time
from collections.abc import Callable

from fastapi.concurrency import run_in_threadpool

KEPT_S = 0.5


class CachedAnswer:
    """An answer computed in a thread on request, at most once per KEPT_S.

    Concurrent requests wait for the same computation, so fifty clients cost as much as one.
    """

    def __init__(self, compute: Callable[[], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._compute = compute
        self._clock = clock
        self._lock = asyncio.Lock()
        self._cached: tuple[float, bytes] | None = None

    async def get(self) -> bytes:
        """Return the answer, at most KEPT_S old."""
        answer = self._fresh()
        if answer is not None:
            return answer
        async with self._lock:
            answer = self._fresh()
            if answer is None:
                answer = await run_in_threadpool(self._compute)
                self._cached = (self._clock(), answer)
            return answer

    def _fresh(self) -> bytes | None:
        if self._cached is None or self._clock() - self._cached[0] >= KEPT_S:
            return None
        return self._cached[1]
