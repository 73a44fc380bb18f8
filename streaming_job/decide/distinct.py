"""The distinct values of a column of a mini-batch, in which nearly always all are the same."""

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[np.integer]) -> list[int]:
    """Return the distinct values, ascending.

    Args:
        values: shape (n,), at least one.
    """
    first = int(values[0])
    # np.unique sorts, which takes 20 us even for a few values
    return [first] if (values == first).all() else np.unique(values).tolist()
