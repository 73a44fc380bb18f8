"""Mapping of simulated time to a real clock."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from loadtests.simulator.timeline import Records

TICK_S = 0.005
"""Records due within one tick are sent together, so they are late by at most this."""
_CHUNK = 2_000
"""Maximum of records yielded at once, so that the caller can do other things in between."""
_QUIET_S = 1.0


class Clock(Protocol):
    """A clock that can also wait."""

    def now_ms(self) -> float:
        """Return the time, ms since 1970-01-01 UTC."""
        ...

    def wait(self, seconds: float, stopped: threading.Event) -> None:
        """Wait for `seconds`, or until `stopped` is set."""
        ...


class SystemClock:
    """The system clock."""

    def now_ms(self) -> float:
        """Return the wall clock, ms since 1970-01-01 UTC."""
        return time.time() * 1_000

    def wait(self, seconds: float, stopped: threading.Event) -> None:
        """Wait for `seconds`, or until `stopped` is set."""
        stopped.wait(seconds)


@dataclass(frozen=True)
class Pace:
    """A linear mapping of simulated to real time."""

    wall_ms: float
    """Real time of the origin."""
    simulated_ms: float
    """Simulated time of the origin."""
    speed: float
    """Simulated seconds per real second; inf: as fast as possible."""

    @classmethod
    def live(cls) -> "Pace":
        """Return the pace at which simulated time is real time."""
        return cls(0.0, 0.0, 1.0)

    def due_ms(self, now_ms: float) -> float:
        """Return the simulated time at a real time; records up to the simulated time are due."""
        if self.speed == float("inf"):
            return float("inf")
        return self.simulated_ms + (now_ms - self.wall_ms) * self.speed

    def seconds_until(self, simulated_ms: float, now_ms: float) -> float:
        """Return the real seconds until a simulated time is due, 0 if it already is."""
        if self.speed == float("inf"):
            return 0.0
        return max(0.0, (simulated_ms - self.due_ms(now_ms)) / self.speed / 1_000)


def paced(
    records: Iterable[Records], pace: Pace, clock: Clock, stopped: threading.Event, deadline_ms: float
) -> Iterator[tuple[Records, float]]:
    """Yield parts of the records when they are due, each with the delay of its first record (simulated ms).

    In a quiet stream an empty part is yielded once a second, so that the caller can poll its producer.

    Args:
        records: records in time order.
        pace: mapping of simulated to real time.
        clock: the real clock.
        stopped: ends the iteration when set.
        deadline_ms: real time at which the iteration ends.
    """
    for part in records:
        start = 0
        while start < len(part):
            now = clock.now_ms()
            if stopped.is_set() or now >= deadline_ms:
                return
            due = pace.due_ms(now)
            end = min(int(np.searchsorted(part.at, due, side="right")), start + _CHUNK)
            if end > start:
                yield part.cut(start, end), due - float(part.at[start]) if due != float("inf") else 0.0
                start = end
                continue
            wait = max(TICK_S, pace.seconds_until(float(part.at[start]), now))
            clock.wait(min(wait, _QUIET_S, (deadline_ms - now) / 1_000), stopped)
            if wait > _QUIET_S:
                yield part.cut(start, start), 0.0
