"""Limits that follow from measured times: ten times the 99th percentile of what is waited for."""

import math
from collections import deque
from collections.abc import Collection

TIMES = 10.0
SHARE = 0.99
KEPT = 1_000
"""Measured times of a kind that are kept: at one every two seconds those of half an hour."""


class Learned:
    """The newest measured times of a kind, and the limit that follows."""

    def __init__(self, floor_s: float, ceiling_s: float) -> None:
        """Nothing is known yet, so the limit is the ceiling.

        Args:
            floor_s: least limit: what is fast for a while may be called slow only from here on.
            ceiling_s: greatest limit, whatever was measured.
        """
        self._floor_s, self._ceiling_s = floor_s, max(floor_s, ceiling_s)
        self._measured: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """Take in a measured time; what is negative (clocks disagree) counts as 0."""
        self._measured.append(max(0.0, seconds))

    @property
    def limit_s(self) -> float:
        """Ten times the 99th percentile, between floor and ceiling."""
        return bounded(percentile(self._measured), self._floor_s, self._ceiling_s)


def percentile(measured: Collection[float]) -> float | None:
    """The 99th percentile by nearest rank; None of nothing."""
    if not measured:
        return None
    return sorted(measured)[math.ceil(SHARE * len(measured)) - 1]


def bounded(p99_s: float | None, floor_s: float, ceiling_s: float) -> float:
    """The limit that follows from a 99th percentile; the ceiling where none is known."""
    return ceiling_s if p99_s is None else min(ceiling_s, max(floor_s, TIMES * p99_s))
