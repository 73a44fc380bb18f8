"""Test, by betting, of the hypothesis that a model alerts at most `ratio` times as often as another.

Each unit (for example, a card-hour) has two flags: x is 1 if the model under test alerted, y is 1 if the
other did. The hypothesis is that E[x - ratio * y] <= 0, given all earlier units. The bettor starts with a
wealth of 1 and stakes a share l of it on x - ratio * y, unit after unit. Each unit multiplies the wealth by
1 + l (x - ratio * y), which is never negative for l < 1/ratio. Under the hypothesis the wealth is a
non-negative supermartingale: the probability that it *ever* reaches 1/alpha is at most alpha (Ville's
inequality), so it may be checked after every unit. The factors commute, so the wealth depends only on three
counts: the units with x only, with y only, and with both. The mean wealth over several stakes is again a
supermartingale, and at least the wealth of the best stake divided by the number of stakes.

Source: G. Shafer, "Testing by betting" (2021); I. Waudby-Smith and A. Ramdas, "Estimating means of bounded
random variables by betting" (2024).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

STAKES = 20
"""Number of stakes in the grid."""
LARGEST_STAKE = 1.0
"""Upper bound of a stake: a unit at most doubles the wealth, so 1/alpha = 100 takes at least seven units."""
DIGITS = 9
"""Decimals to which log wealth is rounded: another machine's log1p may differ in the last bit."""


def stakes(ratio: float) -> NDArray[np.float64]:
    """Return the grid of stakes, float64[STAKES], evenly spaced inside (0, min(1, 1/ratio))."""
    return np.arange(1, STAKES + 1) / (STAKES + 1) * min(LARGEST_STAKE, 1.0 / ratio)


def log_wealth(only_x: ArrayLike, only_y: ArrayLike, both: ArrayLike, ratio: float) -> Any:
    """Compute the natural logarithm of the mean wealth over the grid of stakes on x - ratio * y.

    Args:
        only_x: number of units in which only the model under test alerted; int or int[...].
        only_y: number of units in which only the other model alerted; broadcast against `only_x`.
        both: number of units in which both alerted; broadcast against `only_x`.
        ratio: above 0.

    Returns:
        float64[...], rounded to DIGITS decimals; finite for finite counts. 0 without units.

    With a ratio of 1, units in which both alerted change nothing. Alerts of the model under test alone refute
    the hypothesis after a few units:

    >>> log_wealth(0, 0, 1000, ratio=1.0)
    np.float64(0.0)
    >>> bool(log_wealth([8, 12], 0, 0, ratio=1.0)[0] > log_target(0.05))
    True
    """
    exponents = []
    for stake in stakes(ratio).tolist():
        exponents.append(
            np.asarray(only_x) * np.log1p(stake)
            + np.asarray(only_y) * np.log1p(-stake * ratio)
            + np.asarray(both) * np.log1p(stake * (1.0 - ratio))
        )
    top = np.max(exponents, axis=0)
    # in logarithms: a product over some thousand units would overflow float64
    total = np.sum([np.exp(exponent - top) for exponent in exponents], axis=0)
    return np.round(top + np.log(total / STAKES), DIGITS)


def log_target(alpha: float) -> float:
    """Return the natural logarithm of 1/alpha, the wealth that refutes the hypothesis."""
    return round(-float(np.log(alpha)), DIGITS)
