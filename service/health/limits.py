"""Limits learned from measured times: ten times their 99th percentile."""

import math
from collections import deque
from collections.abc import Collection

TIMES = 10.0
SHARE = 0.99
KEPT = 1_000
"""Number of measured times that are kept: half an hour at one every two seconds."""


class LearnedLimit:
    """A limit that is learned from the newest measured times of one kind."""

    def __init__(self, floor_s: float, ceiling_s: float) -> None:
        """Start without measurements, with the ceiling as limit.

        Args:
            floor_s: least limit, so that a short time is not called slow after a fast period.
            ceiling_s: greatest limit, whatever was measured.
        """
        self._floor_s, self._ceiling_s = floor_s, max(floor_s, ceiling_s)
        self._measured: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """Add a measured time; a negative time (clocks disagree) counts as 0."""
        self._measured.append(max(0.0, seconds))

    @property
    def limit_s(self) -> float:
        """Ten times the 99th percentile, between floor and ceiling."""
        return bounded(percentile(self._measured), self._floor_s, self._ceiling_s)


def percentile(measured: Collection[float]) -> float | None:
    """Return the 99th percentile by nearest rank; None without values."""
    if not measured:
        return None
    return sorted(measured)[math.ceil(SHARE * len(measured)) - 1]


def bounded(p99_s: float | None, floor_s: float, ceiling_s: float) -> float:
    """Return the limit for a 99th percentile; the ceiling if it is unknown."""
    return ceiling_s if p99_s is None else min(ceiling_s, max(floor_s, TIMES * p99_s))
