"""The drift of features, computed from progress records, equals the PSI by its formula."""

import math
from typing import Any

import pytest
from harness.progress_records import progress

from service.health.feature_drift import CALENDAR, CHAMPION, FEWEST, RECENT, feature_drift
from service.metrics.of_quality import of_features

pytestmark = pytest.mark.unit
MODEL = {"name": "card-fraud", "version": "1", "digest": "cd" * 32}
TRAINED = [[100, 100, 0], [190, 10, 0], [50, 150, 0]]
FEATURES = ["amount", "has_profile", "hour_of_day"]


def record(group: int = 0, **changes: Any) -> dict[str, Any]:
    counts = {
        "model": MODEL,
        "sampled": 8,
        "hour": 480_000,
        "features": FEATURES,
        "trained": TRAINED,
        "counts": [[400, 400, 0], [760, 40, 0], [800, 0, 0]],
        "recent": [[300, 300, 0], [0, 0, 600], [600, 0, 0]],
        **changes,
    }
    return progress(group + 1, group, 2, feature_counts=counts)


def formula(new: list[int], old: list[int]) -> float:
    pairs = [(p + 0.5, q + 0.5) for p, q in zip(new, old, strict=True) if p or q]
    all_p, all_q = sum(p for p, _ in pairs), sum(q for _, q in pairs)
    return sum((p / all_p - q / all_q) * math.log(p / all_p * all_q / q) for p, q in pairs)


def test_the_sum_of_the_groups_counts_is_compared_with_training() -> None:
    drift = feature_drift({0: record(), 1: record(1)})
    assert drift is not None
    assert drift.model == MODEL
    assert drift.counted == {CHAMPION: 1600, RECENT: 1200}
    assert drift.psi[CHAMPION]["amount"] == pytest.approx(formula([800, 800, 0], TRAINED[0]))
    assert drift.psi[RECENT]["has_profile"] == pytest.approx(formula([0, 0, 1200], TRAINED[1]))
    assert drift.psi[CHAMPION]["amount"] < 0.01 < 1 < drift.psi[RECENT]["has_profile"]
    assert not CALENDAR & {name for result in drift.psi.values() for name in result}
    greatest = drift.greatest(1)
    assert [row["feature"] for row in greatest] == ["has_profile"]
    assert greatest[0][RECENT] == drift.psi[RECENT]["has_profile"]


def test_few_transactions_have_no_index() -> None:
    few = [[FEWEST - 1, 0, 0]] * 3
    drift = feature_drift({0: record(recent=few)})
    assert drift is not None
    assert drift.psi[RECENT] == {}
    assert set(drift.psi[CHAMPION]) == {"amount", "has_profile"}
    assert {row[RECENT] for row in drift.greatest(5)} == {None}
    assert feature_drift({0: record(recent=[[FEWEST, 0, 0]] * 3)}).psi[RECENT]  # type: ignore[union-attr]


def test_a_group_with_an_old_newest_hour_is_not_recent() -> None:
    drift = feature_drift({0: record(), 1: record(1, hour=480_002)})
    assert drift is not None
    assert drift.counted == {CHAMPION: 1600, RECENT: 600}


def test_groups_that_still_have_another_model_are_left_out() -> None:
    drift = feature_drift({0: record(), 1: record(1, model={**MODEL, "version": "2", "digest": "ef" * 32})})
    assert drift is not None
    assert drift.model["version"] == "2"
    assert drift.counted[CHAMPION] == 800


def test_without_counts_there_is_no_drift() -> None:
    assert feature_drift({}) is None
    assert feature_drift({0: progress(), 1: progress(1, feature_counts=None)}) is None
    assert [family.samples for family in of_features({0: progress()})] == [[], []]


def test_metrics_have_a_label_for_each_feature_and_window() -> None:
    index, counted = of_features({0: record()})
    assert {(s.labels["feature"], s.labels["window"]) for s in index.samples} == {
        (name, window) for name in ("amount", "has_profile") for window in (CHAMPION, RECENT)
    }
    assert {s.labels["window"]: s.value for s in counted.samples} == {CHAMPION: 800, RECENT: 600}
