"""Rounding of scores and contributions, so that processors and libraries that differ in last bits agree.

exp and log of two C libraries, or of one library on two processors, may differ in the last bit, and sums of a
matrix product may be added in another order. Such a difference survives rounding only if a multiple of half a
step lies between the two values (`docs/decisions/176-bytes-do-not-depend-on-the-processor.md`).

Decimal places, not significant digits: contributions are differences of logarithms, whose error is absolute.
"""

from typing import Any

import numpy as np

DECIMALS = 9
"""Decimal places of scores and contributions."""
_STEPS = 1e9
"""Steps of the last decimal place in 1; an exact float64, as is every count of steps below 2**53."""


def rounded(values: Any) -> Any:
    """Round to DECIMALS decimal places, half to even; NaN stays NaN.

    Multiplication, rint and division are exact by IEEE 754, so the result is the same on every machine. It is
    the float64 nearest to a decimal number of DECIMALS places, and rounding it again changes nothing.
    Kernels compile this function (`trees`).

    Args:
        values: float64, or float64[...]; at most 2**52 / 10**DECIMALS in magnitude.

    >>> rounded(0.1 + 0.2) == rounded(0.3)
    np.True_
    """
    return np.rint(values * _STEPS) / _STEPS
