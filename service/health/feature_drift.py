"""Drift of the champion's features: population stability index of each against training. Pure.

Calendar features are left out: even without drift, their distribution differs from training, except in counts
of whole weeks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.guards import psi
from service.health.groups import Groups

CHAMPION, RECENT = "champion", "recent"
WINDOWS = {CHAMPION: "counts", RECENT: "recent"}
"""Window -> field of a progress record's `feature_counts`. CHAMPION starts when the model became champion;
RECENT is the newest two clock hours of arrival of each key group; a group whose newest hour is two or more
before that of another group is left out."""
CALENDAR = frozenset({"hour_of_day", "is_night", "is_weekend"})
FEWEST = 500
"""Minimum of counted transactions for an index: even without drift, the index of n transactions is about
10 / n, so 0.02 at this minimum and more below it."""


@dataclass(frozen=True)
class FeatureDrift:
    """Drift of one champion's features."""

    model: Mapping[str, str]
    """Name, version and digest."""
    counted: Mapping[str, int]
    """Window -> number of counted transactions, which are a sample."""
    psi: Mapping[str, Mapping[str, float]]
    """Window -> feature -> population stability index; empty for a window with fewer than FEWEST counted
    transactions."""

    def greatest(self, most: int) -> list[dict[str, Any]]:
        """Return the `most` features that have drifted most: name, and index by window (None if missing)."""
        greatest: dict[str, float] = {}
        for indices in self.psi.values():
            for name, value in indices.items():
                greatest[name] = max(value, greatest.get(name, 0.0))
        names = sorted(greatest, key=lambda name: (-greatest[name], name))[:most]
        return [
            {"feature": name, **{window: self.psi[window].get(name) for window in WINDOWS}} for name in names
        ]


def feature_drift(groups: Groups) -> FeatureDrift | None:
    """Compute the drift from the newest feature counts of each key group; None without any.

    While a rollout has not reached all groups, only groups with the model of the newest record are counted.
    """
    records = [record for record in groups.values() if record.get("feature_counts")]
    if not records:
        return None
    newest = max(records, key=lambda record: record["written_at"])["feature_counts"]
    same_model = [
        record["feature_counts"]
        for record in records
        if record["feature_counts"]["model"]["digest"] == newest["model"]["digest"]
    ]
    hour = max(group["hour"] for group in same_model)
    current = [group for group in same_model if group["hour"] >= hour - 1]
    counts = {
        CHAMPION: _sum(group["counts"] for group in same_model),
        RECENT: _sum(group["recent"] for group in current),
    }
    counted = {window: int(bins[0].sum()) if len(bins) else 0 for window, bins in counts.items()}
    return FeatureDrift(
        newest["model"],
        counted,
        {
            window: _indices(newest["features"], bins, newest["trained"]) if counted[window] >= FEWEST else {}
            for window, bins in counts.items()
        },
    )


def _sum(counts: Iterable[Sequence[Sequence[int]]]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([np.array(bins, dtype=np.int64) for bins in counts], axis=0)
    return total


def _indices(
    names: Sequence[str], counts: NDArray[np.int64], trained: Sequence[Sequence[int]]
) -> dict[str, float]:
    return {
        name: psi.of_counts(new.tolist(), old)
        for name, new, old in zip(names, counts, trained, strict=True)
        if name not in CALENDAR and any(old)
    }
