"""Counts of a champion's features equal naive ones of its sampled rows, in any batches and after restores."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.catalogue import HOUR_MS
from feature_store.layout import TRANSACTION
from models.feature_bins import SAMPLED, FeatureBins
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.decide.feature_counts import HOURS, FeatureCounts

pytestmark = pytest.mark.unit

BOUNDS = np.array([[0.0, 10.0], [5.0, np.inf]])
BINS = FeatureBins(BOUNDS, np.array([[3, 4, 5, 0], [6, 6, 0, 0]]), np.array([1, 0]))
"""Bins of the features b and a, in columns 1 and 0."""
START_HOUR = 480_000
ROW = st.tuples(
    st.integers(0, 4),  # hours after the start
    st.integers(0, 3),  # number of the transaction's plan
    st.integers(0, 2**20),  # hash of the transaction's id
    st.sampled_from([-1.0, 0.0, 3.0, 7.0, 20.0, np.nan]),
    st.sampled_from([-1.0, 0.0, 3.0, 7.0, 20.0, np.nan]),
)


def plan(version: str) -> Any:
    """A plan with the fields that `FeatureCounts` reads."""
    digest = version * 64
    return SimpleNamespace(
        champion=SimpleNamespace(model=ModelRef("m", version, f"models:/m/{version}", digest, ("a:1", "b:1")))
    )


def scorer(version: str, bins: FeatureBins | None = BINS) -> Scorer:
    return Scorer("m", version, version * 64, ("a", "b"), None, bins=bins)  # type: ignore[arg-type]


def block(rows: list[tuple[int, int, int, float, float]]) -> np.ndarray:
    result = np.zeros(len(rows), TRANSACTION)
    result["arrival"] = [(START_HOUR + hour) * HOUR_MS + 5 for hour, *_ in rows]
    result["transaction"] = [row[2] for row in rows]
    return result


def add(counts: FeatureCounts, plans: list[Any], rows: list[tuple[int, int, int, float, float]]) -> None:
    """Add transactions as the decider does: those of each plan together."""
    for number in sorted({row[1] for row in rows}):
        mine = [row for row in rows if row[1] == number]
        x = np.array([row[3:] for row in mine])
        counts.add(plans, number, scorer(plans[number].champion.model.version), x, block(mine))


def naive(rows: list[tuple[float, ...]]) -> list[list[int]]:
    """Count the values of the features b and a in BINS, one by one."""
    counts = [[0] * 4 for _ in range(2)]
    for row in rows:
        for feature, (value, bounds) in enumerate(((row[4], (0, 5)), (row[3], (10,)))):
            counts[feature][3 if value != value else sum(value > bound for bound in bounds)] += 1
    return counts


def as_told(counts: FeatureCounts) -> dict[str, Any] | None:
    counted = counts.to_json()
    return None if counted is None else orjson.loads(orjson.dumps(counted, option=orjson.OPT_SERIALIZE_NUMPY))


@given(
    st.lists(ROW, min_size=1, max_size=40),
    st.sets(st.integers(1, 39)),
    st.sampled_from(["1111", "1122", "1212", "1211"]),
)
def test_counts_are_of_the_newest_champions_rows_in_any_batches(rows, cuts, versions) -> None:
    plans = [plan(version) for version in versions]
    rows = [row for row in rows if row[1] < len(plans)]
    counts, begun = FeatureCounts(), 0
    for end in [*sorted(cut for cut in cuts if cut < len(rows)), len(rows)]:
        add(counts, plans, rows[begun:end])
        counts, begun = FeatureCounts.decode(counts.encode()), end
    newest = max(row[1] for row in rows)
    first = max((n for n in range(newest) if versions[n] != versions[newest]), default=-1) + 1
    mine = [row for row in rows if first <= row[1] <= newest]
    hour = max(row[0] for row in mine)
    sampled = [row for row in mine if row[2] % SAMPLED == 0]
    assert as_told(counts) == {
        "model": {"name": "m", "version": versions[newest], "digest": versions[newest] * 64},
        "sampled": SAMPLED,
        "hour": START_HOUR + hour,
        "features": ["b", "a"],
        "trained": BINS.trained.tolist(),
        "counts": naive(sampled),
        "recent": naive([row for row in sampled if row[0] > hour - HOURS]),
    }


def test_a_champion_without_bins_ends_the_counts_of_the_one_before() -> None:
    plans, row = [plan("1"), plan("2")], [(0, 0, 0, 1.0, 1.0)]
    counts = FeatureCounts()
    assert as_told(counts) is None
    add(counts, plans, row)
    assert as_told(counts) is not None
    counts.add(plans, 1, scorer("2", None), np.array([[1.0, 1.0]]), block(row))
    assert as_told(counts) is None
    assert as_told(FeatureCounts.decode(counts.encode())) is None


def test_counts_restart_if_a_release_numbers_the_plans_differently() -> None:
    row = [(0, 0, 0, 1.0, 1.0)]
    counts = FeatureCounts()
    add(counts, [plan("1"), plan("1"), plan("2")], [(0, 2, 0, 1.0, 1.0)])
    counts = FeatureCounts.decode(counts.encode())
    add(counts, [plan("1")], row)
    counted = as_told(counts)
    assert counted is not None
    assert counted["model"]["version"] == "1"
    assert counted["counts"] == naive([(0, 0, 0, 1.0, 1.0)])
