"""A histogram that can be added to others, including those of releases with other bounds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Histogram:
    """Counts by upper bound; if bounds changed between releases, their union is used.

    >>> sums = Histogram()
    >>> sums.add((1.0, 5.0), [3, 2, 1], total=12.5)
    >>> sums.add((1.0, 2.0), [1, 0, 0], total=0.5)
    >>> sums.cumulative()
    [(1.0, 4), (2.0, 4), (5.0, 6), (inf, 7)]
    """

    bounds: tuple[float, ...] = ()
    """Ascending upper bounds, b of them."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """Number of values in each bucket alone (not cumulative), shape (b + 1,); the last bucket is open."""
    total: float = 0.0
    """Sum of the values."""

    def add(self, bounds: Sequence[float], counts: NDArray[np.int64] | Sequence[int], total: float) -> None:
        """Add a histogram.

        Args:
            bounds: ascending upper bounds, b of them.
            counts: by bucket, b + 1 of them.

        Raises:
            ValueError: there are more or fewer counts than buckets.
        """
        if len(counts) != len(bounds) + 1:
            raise ValueError(f"{len(counts)} counts for {len(bounds)} bounds")
        if not self.bounds and not self.counts[0]:
            # the usual case: each Kafka transaction begins with new, empty counts
            self.bounds, self.counts = tuple(bounds), np.array(counts, dtype=np.int64)
        elif self.bounds != tuple(bounds):
            union = tuple(sorted({*self.bounds, *bounds}))
            self.counts = _spread(self.bounds, self.counts, union) + _spread(bounds, counts, union)
            self.bounds = union
        else:
            self.counts = self.counts + counts
        self.total += total

    def add_json(self, record: Mapping[str, Any]) -> None:
        """Add `{le, counts, sum}` of a record."""
        counts = np.array([int(count) for count in record["counts"]], dtype=np.int64)
        self.add([float(bound) for bound in record["le"]], counts, float(record["sum"]))

    def cumulative(self) -> list[tuple[float, int]]:
        """Return (upper bound, number of values up to it), ascending; the last bound is infinity."""
        return list(zip([*self.bounds, float("inf")], np.cumsum(self.counts).tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return `{le, counts, sum}`; counts are a numpy array, which orjson can serialise."""
        return {"le": self.bounds, "counts": self.counts, "sum": self.total}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Histogram":
        """Parse what `to_json` returned, even after it was serialised as JSON."""
        histogram = Histogram()
        histogram.add_json(record)
        return histogram


def _spread(
    bounds: Sequence[float], counts: NDArray[np.int64] | Sequence[int], union: tuple[float, ...]
) -> NDArray[np.int64]:
    """Return counts by the buckets of `union`, a superset of `bounds`; each count keeps its upper bound."""
    spread = np.zeros(len(union) + 1, dtype=np.int64)
    spread[[*np.searchsorted(union, bounds).tolist(), len(union)]] = counts
    return spread
