"""Whether a lag grows: the slope of a straight line through its samples, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 6
"""Samples below which nothing is said."""
SURE = 3.0
"""Standard errors that a slope must be above 0."""
SHARE = 0.01
"""Of the rate: a job that falls behind by less decides 99 of 100 transactions as they come."""


@dataclass(frozen=True)
class Trend:
    """A line through samples of a lag, by least squares."""

    slope: float
    """Records per second."""
    error: float
    """Standard error of the slope, records per second."""

    def grows(self, rate: float) -> bool:
        """Whether the lag grows by more than chance and by more than a hundredth of the rate.

        Args:
            rate: transactions per second that are sent.
        """
        return self.slope > SHARE * rate and self.slope > SURE * self.error


def trend(samples: Sequence[tuple[float, int]]) -> Trend | None:
    """The line through samples (second, records behind); None if they are too few or at one moment."""
    if len(samples) < FEWEST:
        return None
    at, lag = np.array(samples, dtype=np.float64).T
    spread = at - at.mean()
    if not (square := float(spread @ spread)):
        return None
    slope = float(spread @ lag) / square
    left = lag - lag.mean() - slope * spread
    error = math.sqrt(float(left @ left) / (len(samples) - 2) / square)
    return Trend(slope, error)


def grows(samples: Sequence[tuple[float, int]], rate: float, from_s: float, to_s: float) -> bool:
    """Whether the lag grows between two times; what cannot be said counts as stable.

    Args:
        samples: (second, records behind).
        rate: transactions per second that are sent.
        from_s: leave out what is before.
        to_s: leave out what is after.
    """
    found = trend([sample for sample in samples if from_s <= sample[0] <= to_s])
    return found is not None and found.grows(rate)
