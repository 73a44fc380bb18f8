"""Percentiles of a score among a model's evaluation scores."""

import numpy as np
from numpy.typing import NDArray

LEVELS: NDArray[np.float64] = np.concatenate(
    [
        np.arange(1, 99),
        99 + np.arange(0, 10) / 10,
        99.9 + np.arange(1, 10) / 100,
        99.99 + np.arange(1, 11) / 1000,
    ]
).round(3)
"""Percentiles that a score can have besides 0, ascending: whole ones up to 99, then steps of 0.1, 0.01 and
0.001."""


def quantiles(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the least score of each percentile of LEVELS, shape (len(LEVELS),).

    Args:
        scores: at least one, finite, shape (n,).
    """
    return np.quantile(scores, LEVELS / 100, method="higher")


def percentile(least: NDArray[np.float64], score: float) -> float:
    """Return the greatest percentile of LEVELS that a score reaches; 0 below all of them.

    Args:
        least: `quantiles` of a model.
    """
    reached = int(np.searchsorted(least, score, side="right"))
    return float(LEVELS[reached - 1]) if reached else 0.0
