"""When records are due: a tape's times mapped to a clock that never jumps. Pure, but for that clock."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from loadtests.rig.native import sleep

TICK_S = 0.001
"""Records due within one tick are sent together, so they are late by at most this."""
IDLE_S = 0.05
"""Longest wait at once, so that a stop is noticed."""
CHUNK = 256
"""Maximal number of records between two readings of the clock; reached when the sender is late."""


class SteadyClock:
    """Time since 1970-01-01 UTC that never jumps: the system's clock when created, then the monotonic one.

    It waits in the thread of the operating system, also where gevent has replaced Python's threads.
    """

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    def now_ns(self) -> int:
        """Return the time, ns since 1970-01-01 UTC."""
        return self._epoch_ns + time.monotonic_ns()

    def now_ms(self) -> float:
        """Return the time, ms since 1970-01-01 UTC."""
        return self.now_ns() / 1e6

    def wait(self, seconds: float) -> None:
        """Wait."""
        sleep(seconds)


@dataclass(frozen=True)
class Pace:
    """A linear mapping of a tape's time to real time."""

    wall_ms: float
    """Real time of the origin."""
    tape_ms: float
    """The tape's time of the origin."""
    speed: float = 1.0
    """Seconds of the tape per real second; inf: as fast as possible."""

    @classmethod
    def live(cls) -> "Pace":
        """Return the pace at which the tape's time is real time."""
        return cls(0.0, 0.0)

    @classmethod
    def at_once(cls) -> "Pace":
        """Return the pace at which every record is due."""
        return cls(0.0, 0.0, float("inf"))

    @property
    def is_at_once(self) -> bool:
        """Whether every record is due."""
        return self.speed == float("inf")

    def reached_ms(self, now_ms: float) -> float:
        """Return the tape's time at a real time: records up to it are due."""
        if self.is_at_once:
            return float("inf")
        return self.tape_ms + (now_ms - self.wall_ms) * self.speed

    def due_ms(self, at_ms: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the real times at which records are due; inf as speed has no such times.

        Args:
            at_ms: the records' times on the tape.
        """
        due: npt.NDArray[np.float64] = self.wall_ms + (at_ms - self.tape_ms) / self.speed
        return due

    def seconds_until(self, at_ms: float, now_ms: float) -> float:
        """Return the real seconds until a time of the tape, 0 if it has passed."""
        if self.is_at_once:
            return 0.0
        return max(0.0, (at_ms - self.reached_ms(now_ms)) / self.speed / 1_000)


class TimedRecords(Protocol):
    """Records of one topic in the order of their times."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        ...

    @property
    def at(self) -> npt.NDArray[Any]:
        """Times on the tape, ms, ascending."""
        ...

    def __len__(self) -> int: ...

    def columns(self, start: int, end: int) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
        """Return the values and the keys of the records from `start` to before `end`."""
        ...


Batch = TypeVar("Batch", bound=TimedRecords)


def paced(
    parts: Iterable[Batch], pace: Pace, clock: SteadyClock, may_go_on: Callable[[], bool]
) -> Iterator[tuple[Batch, int, int]]:
    """Yield (part, start, end) once the part's records from `start` to before `end` are due.

    Before each wait the range is empty, so that the caller can do other things.

    Args:
        parts: records in time order.
        may_go_on: asked before each range; False ends the iteration.
    """
    for part in parts:
        start = 0
        while start < len(part):
            if not may_go_on():
                return
            now = clock.now_ms()
            due = np.searchsorted(part.at[start : start + CHUNK], pace.reached_ms(now), side="right")
            end = start + int(due)
            yield part, start, end
            if end == start:
                wait = pace.seconds_until(float(part.at[start]), now)
                clock.wait(min(max(wait, TICK_S), IDLE_S))
            start = end
