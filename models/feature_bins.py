"""Training distribution of a model's features: quantile bins and how many training transactions each holds.

The job counts the champion's features in the same bins, for their population stability index. A bin holds the
values above the previous bin's upper bound and up to its own; the last bin holds the unknown values (NaN). A
value that many transactions share, such as 0 for a count or 1 for a flag, has a bin of its own, so that it
does not hide rare values close to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import types

from feature_store.jit import njit
from models.errors import ModelError

LEVELS = np.arange(1, 10) / 10
"""Quantiles that bound the bins."""
ALIKE = 1e-9
"""Width of the bin of a value v that many transactions share, as a share of the larger of |v| and 1."""
MOST_BOUNDS = 16
"""Greatest number of bounds per feature that a model's file may have."""
SAMPLED = 8
"""The job counts one in SAMPLED transactions, chosen by the hash of the transaction's id."""

_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_IDS = types.Array(types.uint64, 1, "A", readonly=True)
_COLUMNS, _BOUNDS = types.Array(types.int64, 1, "C", readonly=True), types.float64[:, ::1]


@dataclass(frozen=True)
class FeatureBins:
    """For each of f features: b bins with an upper bound, an open bin above them, and one for unknown values.

    Raises:
        ModelError: shapes or types do not fit; bounds are too many, NaN or not ascending; or a count or the
            index of a column is negative.
    """

    upper: np.ndarray
    """float64[b, f]: ascending upper bounds of each feature, padded with infinity to b bounds."""
    trained: np.ndarray
    """int64[f, b + 2]: training transactions in each bin; the last bin holds the unknown values."""
    columns: np.ndarray
    """int64[f]: column of each feature in the rows to be counted."""

    def __post_init__(self) -> None:
        upper, trained = self.upper, self.trained
        if not (
            upper.dtype == np.float64
            and trained.dtype == self.columns.dtype == np.int64
            and upper.ndim == 2
            and len(upper) <= MOST_BOUNDS
            and trained.shape == (upper.shape[1], len(upper) + 2)
            and self.columns.shape == upper.shape[1:]
            and not np.isnan(upper).any()
            and (upper[1:] >= upper[:-1]).all()
            and (trained >= 0).all()
            and (self.columns >= 0).all()
        ):
            raise ModelError("the model's feature bins are invalid; train and register it again")

    def on(self, columns: Sequence[int]) -> "FeatureBins":
        """Return the same bins for rows with other columns.

        Args:
            columns: index of each feature's column in these rows.
        """
        return replace(self, columns=np.array(columns, dtype=np.int64))

    def add(self, x: np.ndarray, transactions: np.ndarray, counts: np.ndarray) -> None:
        """Add to `counts` those of n transactions that are in the sample.

        Args:
            x: float64[n, c], C-contiguous, with all of `columns`.
            transactions: uint64[n], hashes of the transactions' ids.
            counts: int64[f, b + 2], C-contiguous, increased in place.

        Raises:
            ModelError: x lacks a column, or counts has another shape.
        """
        if counts.shape != self.trained.shape or (self.columns >= x.shape[1]).any():
            raise ModelError(
                "the rows do not have the columns of the model's feature bins; register it again"
            )
        _count(x, transactions, SAMPLED - 1, self.columns, self.upper, counts)


def bins_of(x: np.ndarray) -> FeatureBins:
    """Return the training distribution of features.

    Args:
        x: float64[n, f]; NaN where unknown.
    """
    width = x.shape[1]
    upper = np.full((len(LEVELS), width), np.inf)
    for column in range(width):
        bounds = _bounds(x[np.isfinite(x[:, column]), column])
        upper[: bounds.size, column] = bounds
    trained = np.zeros((width, len(LEVELS) + 2), dtype=np.int64)
    columns = np.arange(width, dtype=np.int64)
    _count(np.ascontiguousarray(x), np.zeros(len(x), dtype=np.uint64), 0, columns, upper, trained)
    return FeatureBins(upper, trained, columns)


def _bounds(values: np.ndarray) -> np.ndarray:
    """Return at most len(LEVELS) ascending upper bounds for the finite values of a feature."""
    if not values.size:
        return np.zeros(0)
    bounds, times = np.unique(np.quantile(values, LEVELS, method="higher"), return_counts=True)
    shared = bounds[times > 1]
    # not np.nextafter: the next number below 0 is subnormal, and processors may treat it as 0
    below = shared - ALIKE * np.maximum(1.0, np.abs(shared))
    return np.unique(np.concatenate([bounds, below]))


@njit(types.void(_ROWS, _IDS, types.uint64, _COLUMNS, _BOUNDS, types.int64[:, ::1]), cache=True, nogil=True)
def _count(x, transactions, mask, columns, upper, counts):  # type: ignore[no-untyped-def]
    features = len(columns)
    values, bins = np.empty(features), np.empty(features, np.int64)
    for row in range(len(x)):
        if transactions[row] & mask:
            continue
        for feature in range(features):
            values[feature] = x[row, columns[feature]]
            bins[feature] = 0
        for bound in range(len(upper)):
            for feature in range(features):
                # true for NaN, too: it passes every bound, and `is_unknown` moves it on to the last bin
                bins[feature] += not values[feature] <= upper[bound, feature]
        for feature in range(features):
            is_unknown = values[feature] != values[feature]
            counts[feature, bins[feature] + is_unknown] += 1
