"""Training: determinism, split, thresholds, weight of frauds and evaluation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.algorithms import QUICK, Algorithm, Learner
from models.errors import ModelError
from models.thresholds import threshold_for_budget, threshold_for_cost
from models.train import (
    DAY_MS,
    evaluate,
    split_by_time,
)

pytestmark = pytest.mark.unit

SCORES = arrays(np.float64, st.integers(1, 60), elements=st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9, 1.0]))


def test_the_same_data_and_seed_give_the_same_model() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_000, 4))
    y = x[:, 0] > 1
    learner = replace(QUICK, seed=3, iterations=10)
    first, second = learner.fit(x, y), learner.fit(x, y)
    assert np.array_equal(first.predict_proba(x), second.predict_proba(x))


def test_a_feature_that_was_never_known_is_not_used() -> None:
    x = np.random.default_rng(0).normal(size=(500, 3))
    y = x[:, 0] > 1
    x[:, 1] = np.nan
    model = replace(QUICK, iterations=5).fit(x, y)
    known = x.copy()
    known[:, 1] = 7.0
    assert np.array_equal(model.predict_proba(x), model.predict_proba(known))


def test_history_without_frauds_is_refused() -> None:
    with pytest.raises(ModelError, match="0 frauds in 10"):
        QUICK.fit(np.zeros((10, 2)), np.zeros(10))


def test_labels_of_the_delay_before_the_holdout_are_not_used() -> None:
    # day:    0 .......... 67 | 68 .. 74 | 75 ........ 100
    #         train             unknown    hold-out
    days = np.arange(101) * DAY_MS
    split = split_by_time(days, share=0.25)
    assert np.flatnonzero(split.train).tolist() == list(range(68))
    assert np.flatnonzero(split.holdout).tolist() == list(range(75, 101))


def test_a_short_history_still_has_a_gap() -> None:
    split = split_by_time(np.arange(1_000), share=0.25)
    assert split.train.sum() > 600
    assert not (split.train & split.holdout).any()
    assert (~split.train & ~split.holdout).sum() >= 99


@given(SCORES, st.floats(0, 1))
def test_the_alert_budget_is_never_exceeded_and_no_lower_threshold_keeps_it(
    scores: np.ndarray, share: float
) -> None:
    threshold = threshold_for_budget(scores, share)
    assert 0 <= threshold <= 1
    # no threshold lies above a score of 1
    assert threshold == 1.0 or (scores >= threshold).sum() <= len(scores) * share + 1e-9
    lower = scores[scores < threshold]
    if len(lower):
        assert (scores >= lower.max()).sum() > int(np.floor(len(scores) * share))


COSTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9, 1.0]), st.booleans(), st.integers(0, 50)),
    min_size=1,
    max_size=30,
)
"""Score, fraud, amount."""


@given(COSTS, st.integers(0, 20))
def test_no_other_threshold_costs_less(rows: list[tuple[float, bool, int]], alert_cost: int) -> None:
    scores, fraud, amount = (np.array(column) for column in zip(*rows, strict=True))

    def cost(threshold: float) -> float:
        alerts = scores >= threshold
        return float(alert_cost * alerts.sum() + amount[fraud & ~alerts].sum())

    chosen = threshold_for_cost(scores, fraud, amount, alert_cost)
    assert 0 <= chosen <= 1
    # no alerts at all are a choice, too, unless a score is 1: the greatest threshold, 1, alerts on it
    others = [*scores, 1.0] if (scores == 1.0).any() else [*scores, 2.0]
    assert cost(chosen) == min(map(cost, others))


def test_frauds_have_the_given_weight() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 3))
    y = x[:, 0] + rng.normal(size=2_000) > 2
    for algorithm in Algorithm:
        plain, heavy = (
            Learner(algorithm, iterations=20, fraud_weight=weight).fit(x, y).predict_proba(x)[:, 1]
            for weight in (1.0, 20.0)
        )
        assert heavy.mean() > 1.5 * plain.mean()


def test_quality_is_measured_at_the_threshold() -> None:
    y = np.array([1, 0, 1, 0, 0])
    quality = evaluate(y, np.array([0.9, 0.8, 0.4, 0.3, 0.1]), 0.5)
    assert (quality.precision, quality.recall, quality.alert_share) == (0.5, 0.5, 0.4)
    assert quality.auc_roc == pytest.approx(5 / 6)
    assert quality.average_precision == pytest.approx((1 + 2 / 3) / 2)


def test_one_class_alone_leaves_ranking_unknown() -> None:
    quality = evaluate(np.zeros(3), np.array([0.1, 0.2, 0.3]), 0.9)
    assert "auc_roc" not in quality.metrics()
    assert quality.metrics()["alert_share"] == 0
