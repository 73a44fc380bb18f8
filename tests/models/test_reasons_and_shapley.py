"""Reasons of alerts compared with exact Shapley values of the same trees.

`shap` computes the Shapley values (Lundberg et al. 2020).

`pytest -s` prints the figures of docs/measurements.md.
"""

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
import shap
from threadpoolctl import threadpool_limits

from feature_store.catalogue import NAMES
from feature_store.training import training_set
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from models.algorithms import QUICK
from models.sentences.alerts import of_alert
from models.trees import Trees, compile_trees

pytestmark = pytest.mark.unit

TRAINED, JUDGED = 40_000, 20_000
ALERTS = 200
REASONS = 5


@dataclass(frozen=True)
class Explained:
    """The transactions with the highest scores, explained twice."""

    trees: Trees
    rows: np.ndarray
    ours: np.ndarray
    """Contributions from which an alert's reasons are chosen, float64[n, f], log-odds."""
    exact: np.ndarray
    """Shapley values, float64[n, f], log-odds."""
    base: float
    """Base log-odds: base plus either kind of contributions is the row's log-odds."""


@pytest.fixture(scope="module")
def explained() -> Explained:
    """Alerts of a gradient boosting model, trained on simulated traffic."""
    stream = Stream(World.create(0, 2_000), 1.0, 1_780_000_000_000, disturbances=Disturbances.none())
    history = pa.concat_tables([batch.table for batch in stream.blocks(events=TRAINED + JUDGED)])
    x = training_set.build(history)
    y = history["label"].fill_null(0).to_numpy() == 1
    with threadpool_limits(1):
        estimator = QUICK.fit(x[:TRAINED], y[:TRAINED])
    trees, later = compile_trees(estimator), x[TRAINED:]
    rows = np.ascontiguousarray(later[np.argsort(-trees.score(later), kind="stable")[:ALERTS]])
    explainer = shap.TreeExplainer(estimator)
    return Explained(
        trees,
        rows,
        trees.explain(rows),
        explainer.shap_values(rows),
        float(np.ravel(explainer.expected_value)[0]),
    )


def named(contributions: np.ndarray) -> list[int]:
    """The features that an alert names: up to REASONS of them that raise the score, the strongest first."""
    strongest = np.argsort(-contributions, kind="stable")[:REASONS]
    return [int(feature) for feature in strongest if contributions[feature] > 0]


def test_both_explain_the_same_score_from_the_same_base(explained: Explained) -> None:
    odds = explained.trees.log_odds(explained.rows)
    np.testing.assert_allclose(explained.base + explained.exact.sum(axis=1), odds, atol=1e-9)
    np.testing.assert_allclose(explained.base + explained.ours.sum(axis=1), odds, atol=1e-9)


def test_reasons_agree_with_exact_shapley_values(explained: Explained) -> None:
    pairs = [(named(ours), named(exact)) for ours, exact in zip(explained.ours, explained.exact, strict=True)]
    first = np.mean([ours[0] == exact[0] for ours, exact in pairs])
    first_is_named = np.mean([ours[0] in exact for ours, exact in pairs])
    shared = np.mean([len(set(ours) & set(exact)) / len(exact) for ours, exact in pairs])
    lowering = np.mean(
        [row[feature] <= 0 for (ours, _), row in zip(pairs, explained.exact, strict=True) for feature in ours]
    )
    weight = np.mean(
        [
            sum(max(row[feature], 0.0) for feature in ours) / sum(row[feature] for feature in exact)
            for (ours, exact), row in zip(pairs, explained.exact, strict=True)
        ]
    )
    other_first = np.mean(
        [
            row[ours[0]] / row[exact[0]]
            for (ours, exact), row in zip(pairs, explained.exact, strict=True)
            if ours[0] != exact[0]
        ]
    )
    correlation = np.mean(
        [np.corrcoef(ours, exact)[0, 1] for ours, exact in zip(explained.ours, explained.exact, strict=True)]
    )
    print(
        f"\n{ALERTS} alerts: the first reason is Shapley's first in {first:.1%}, and among Shapley's five in "
        f"{first_is_named:.1%}; {shared:.1%} of Shapley's five are among the reasons; the reasons' Shapley "
        f"values sum to {weight:.1%} of those of Shapley's five; {lowering:.2%} of the reasons do not raise "
        f"the score by Shapley; correlation {correlation:.3f}; where the first reasons differ, the Shapley "
        f"value of the alert's is {other_first:.1%} of the greatest"
    )
    assert first > 0.7
    assert first_is_named > 0.95
    assert shared > 0.75
    assert weight > 0.93
    assert other_first > 0.5
    assert lowering < 0.01
    assert correlation > 0.9


def test_the_reasons_of_an_alert_take_less_than_a_millisecond(explained: Explained) -> None:
    contributions, sentences = [], []
    for row in explained.rows:
        begun = time.thread_time()
        (ours,) = explained.trees.explain(row[np.newaxis])
        contributions.append(time.thread_time() - begun)
        values = dict(zip(NAMES, row.tolist(), strict=True))
        reasons = [{"feature": NAMES[feature], "value": values[NAMES[feature]]} for feature in named(ours)]
        alert = {"features": values, "currency": "EUR", "rules": ["score"], "reasons": reasons}
        begun = time.thread_time()
        assert len(of_alert(alert)) > 0
        sentences.append(time.thread_time() - begun)
    print(
        f"\nan alert: {1e6 * float(np.median(contributions)):.1f} us for the contributions, "
        f"{1e6 * float(np.median(sentences)):.1f} us for the sentences"
    )
    assert np.median(contributions) + np.median(sentences) < 1e-3
