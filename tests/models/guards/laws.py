"""Card-hours of pairs of models, drawn at random, and a bound on the errors that chance makes."""

import math

import numpy as np
from numpy.typing import NDArray

Path = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def law(overlap: float, ratio: float) -> tuple[float, float, float]:
    """Shares (both, only champion, only challenger) of the card-hours in which either model alerts.

    Args:
        overlap: card-hours in which both alert, as a share of the most that `ratio` permits.
        ratio: card-hours in which the challenger alerts / those in which the champion does; 1 or more.
    """
    both = overlap * min(1.0, 1.0 / ratio)
    # both + only challenger = ratio * (both + only champion), and the three shares add up to 1
    champion = (1 - ratio * both) / (1 + ratio)
    return both, champion, 1 - both - champion


def paths(shares: tuple[float, float, float], pairs: int, units: int, seed: int) -> Path:
    """Cumulative counts (both, only champion, only challenger) after each card-hour, int64[pairs, units]."""
    drawn = np.random.default_rng(seed).random((pairs, units))
    both = (drawn < shares[0]).cumsum(axis=1)
    champion = ((drawn >= shares[0]) & (drawn < shares[0] + shares[1])).cumsum(axis=1)
    return both, champion, np.arange(1, units + 1) - both - champion


def most_by_chance(trials: int, alpha: float) -> int:
    """Smallest number of errors that chance (`alpha` per trial) exceeds in at most 1 of 10,000 runs."""
    at_most = 0.0
    for k in range(trials + 1):
        at_most += math.comb(trials, k) * alpha**k * (1 - alpha) ** (trials - k)
        if at_most >= 1 - 1e-4:
            return k
    return trials
