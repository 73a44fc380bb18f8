"""Betting against the hypothesis that one model alerts at most `ratio` times as often as another.

Each unit (a card-hour) has two flags: x says whether the model under test alerted, y the other one. The
hypothesis is that E[x - ratio * y] <= 0, whatever came before. Who starts with a wealth of 1 and stakes the
share l of it on x - ratio * y, unit after unit, multiplies it by 1 + l (x - ratio * y), which is never
negative for l < 1/ratio. If the hypothesis holds, the wealth is a non-negative supermartingale: the chance
that it *ever* reaches 1/alpha is at most alpha (Ville's inequality), so it may be looked at after every
unit. Factors commute, so the wealth is a function of three counts; the mean over several stakes is a
supermartingale again, and loses at most a factor of their number to the best of them.

Source: G. Shafer, "Testing by betting" (2021); I. Waudby-Smith and A. Ramdas, "Estimating means of bounded
random variables by betting" (2024).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

STAKES = 20
"""Points of the grid."""
LARGEST_STAKE = 1.0
"""One unit never more than doubles the wealth, so 1/alpha = 100 takes seven units at least."""
DIGITS = 9
"""Decimals of a wealth's logarithm that count: another machine's log1p may differ in the last bit."""


def stakes(ratio: float) -> NDArray[np.float64]:
    """The grid, float64[STAKES]: evenly spaced inside (0, min(1, 1/ratio))."""
    return np.arange(1, STAKES + 1) / (STAKES + 1) * min(LARGEST_STAKE, 1.0 / ratio)


def log_wealth(only_x: ArrayLike, only_y: ArrayLike, both: ArrayLike, ratio: float) -> Any:
    """Natural logarithm of the wealth of the bet on x - ratio * y, mean over the grid.

    Args:
        only_x: units in which only the model under test alerted; int or int[...].
        only_y: units in which only the other alerted; broadcast against `only_x`.
        both: units in which both alerted; the same.
        ratio: above 0.

    Returns:
        float64[...], rounded to DIGITS decimals; finite for finite counts. 0 without units.
    """
    exponents = []
    for stake in stakes(ratio).tolist():
        exponents.append(
            np.asarray(only_x) * np.log1p(stake)
            + np.asarray(only_y) * np.log1p(-stake * ratio)
            + np.asarray(both) * np.log1p(stake * (1.0 - ratio))
        )
    top = np.max(exponents, axis=0)
    # in logarithms: a thousand units are beyond what float64 can multiply
    total = np.sum([np.exp(exponent - top) for exponent in exponents], axis=0)
    return np.round(top + np.log(total / STAKES), DIGITS)


def log_target(alpha: float) -> float:
    """Natural logarithm of the wealth that refutes the hypothesis, 1/alpha."""
    return round(-float(np.log(alpha)), DIGITS)
