"""Trend of a lag: the slope of a line through its samples, and its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 6
"""Minimal number of samples for a trend."""
SURE = 3.0
"""Number of standard errors by which a significant slope exceeds 0."""
SHARE = 0.01
"""Minimal slope of a growing lag, as a share of the sending rate. With a smaller slope the job decides more
than 99 of 100 transactions as fast as they are sent."""


@dataclass(frozen=True)
class Trend:
    """A line through samples of a lag, by least squares."""

    slope: float
    """Records per second."""
    error: float
    """Standard error of the slope, records per second."""

    def grows(self, rate: float) -> bool:
        """Return whether the lag grows significantly, and by more than a hundredth of the rate.

        Args:
            rate: sent transactions per second.
        """
        return self.slope > SHARE * rate and self.slope > SURE * self.error


def trend(samples: Sequence[tuple[float, int]]) -> Trend | None:
    """Fit a line through samples (second, lag in records); None if they are too few or simultaneous."""
    if len(samples) < FEWEST:
        return None
    at, lag = np.array(samples, dtype=np.float64).T
    spread = at - at.mean()
    if not (square := float(spread @ spread)):
        return None
    slope = float(spread @ lag) / square
    residuals = lag - lag.mean() - slope * spread
    error = math.sqrt(float(residuals @ residuals) / (len(samples) - 2) / square)
    return Trend(slope, error)


def grows(samples: Sequence[tuple[float, int]], rate: float, from_s: float, to_s: float) -> bool:
    """Return whether the lag grows between two times; with too few samples for a trend it counts as stable.

    Args:
        samples: (second, lag in records).
    """
    line = trend([sample for sample in samples if from_s <= sample[0] <= to_s])
    return line is not None and line.grows(rate)
