"""Histogram of a model's scores, as in progress records, registered versions and drift guards."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

BOUNDS = tuple(step / 20 for step in range(1, 21))
"""Upper bounds of the 20 closed buckets, 0.05, 0.1 .. 1; one open bucket follows."""


@dataclass(frozen=True)
class ScoreHistogram:
    """Counts of scores by upper bound.

    Raises:
        ValueError: bounds are missing, not finite or not ascending, a count is negative, the number of counts
            is not the number of bounds plus one, or the sum is no finite number.
    """

    le: tuple[float, ...] = BOUNDS
    """The b ascending upper bounds; a score lies in the first bucket whose bound it does not exceed."""
    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """Number of scores in each of the b + 1 buckets, not cumulative; the last bucket is open."""
    sum: float = 0.0
    """Sum of the scores."""

    def __post_init__(self) -> None:
        if not self.le or not all(math.isfinite(bound) for bound in self.le):
            raise ValueError("le has no bounds, or one that is not finite")
        if any(upper <= lower for lower, upper in zip(self.le, self.le[1:], strict=False)):
            raise ValueError("le does not ascend")
        if len(self.counts) != len(self.le) + 1:
            raise ValueError(
                f"{len(self.counts)} counts for {len(self.le)} bounds; there must be one count more"
            )
        if any(count < 0 for count in self.counts):
            raise ValueError("counts has a negative number")
        if not math.isfinite(self.sum):
            raise ValueError("sum is not finite")

    @property
    def total(self) -> int:
        """Number of scores."""
        return sum(self.counts)

    @staticmethod
    def of(scores: ArrayLike) -> "ScoreHistogram":
        """Count scores, float64[n]; scores that are not finite are left out."""
        values = np.asarray(scores, dtype=np.float64)
        values = values[np.isfinite(values)]
        counts = np.bincount(np.searchsorted(BOUNDS, values), minlength=len(BOUNDS) + 1)
        return ScoreHistogram(BOUNDS, tuple(counts.tolist()), float(values.sum()))

    @staticmethod
    def summed(histograms: Iterable["ScoreHistogram"]) -> "ScoreHistogram":
        """Sum histograms over the union of their bounds; the result is the same in any order.

        Each count is added, undivided, to the bucket of the union that has the same upper bound.
        """
        parts = list(histograms) or [EMPTY]
        union = tuple(sorted({bound for part in parts for bound in part.le}))
        counts = [0] * (len(union) + 1)
        for part in parts:
            index_of = {bound: index for index, bound in enumerate(union)}
            for bound, count in zip(part.le, part.counts, strict=False):
                counts[index_of[bound]] += count
            counts[-1] += part.counts[-1]
        return ScoreHistogram(union, tuple(counts), math.fsum(part.sum for part in parts))

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "ScoreHistogram":
        """Read `{le, counts, sum}`; `sum` is optional.

        Raises:
            KeyError, TypeError, ValueError, AttributeError, OverflowError: the record is no histogram.
        """
        counts = tuple(int(count) for count in record["counts"])
        if any(count != given for count, given in zip(counts, record["counts"], strict=True)):
            raise ValueError("counts has a number that is no integer")
        return ScoreHistogram(
            tuple(float(bound) for bound in record["le"]), counts, float(record.get("sum", 0.0))
        )

    def to_json(self) -> dict[str, Any]:
        """Return `{le, counts, sum}` in built-in types."""
        return {"le": list(self.le), "counts": list(self.counts), "sum": self.sum}


EMPTY = ScoreHistogram()
"""A histogram without scores."""
