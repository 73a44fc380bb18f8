"""Models that fail some transactions: only the rules decide those, the alert says so, the oracle agrees."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness.job_world import World, expected_alerts, load, scorer
from harness.log_world import HOUR, MINUTE, SECOND
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from feature_store.catalogue import IDENTITIES, NAMES
from models import guarded, loading, registry
from models.errors import ModelError, ModelUnavailableError
from models.registry import ModelRef
from models.scoring import Scorer
from streaming_job.contracts import Contract, validate

pytestmark = pytest.mark.without_stack

Array = NDArray[np.float64]
Load = Callable[[ModelRef], Scorer]


class Foreign:
    """A classifier made of two functions."""

    def __init__(
        self, score: Callable[[Array], Array], explain: Callable[[Array], Array] | None = None
    ) -> None:
        self.score = score
        self.explain = explain or np.zeros_like


def foreign(score: Callable[[Array], Array], explain: Callable[[Array], Array] | None = None) -> Scorer:
    known = scorer()
    return Scorer(known.name, known.version, known.digest, known.feature_names, Foreign(score, explain))


def world(cards: int = 6, n: int = 120, **rollout: object) -> World:
    """Transactions of a few cards in a short time; half of the cards have a profile."""
    rng = random.Random(5)
    result = World(rollout=False)
    result.rollout("r1", 0, max_count_5m=4, **rollout)  # type: ignore[arg-type]
    for card in range(0, cards, 2):
        result.profile("r", -HOUR, f"c{card}")
    for number in range(n):
        result.tx(number * SECOND, rng.randrange(60_000) / 100, card_id=f"c{rng.randrange(cards)}")
    return result


def assert_equal_to_the_oracle(made: World, load_model: Load) -> list[dict[str, object]]:
    """Check that alerts are the same bytes in any batches, and agree with the oracle's; return them."""
    whole = [
        alert.value
        for outcome in made.run(load_model=load_model)
        for alert in outcome.records["fraud_alerts"]
    ]
    for cuts in ((1, 2, 3, 50), tuple(range(0, len(made.transactions), 7))):
        split = made.run(cuts, load_model=load_model, rebuild_each_batch=True)
        assert [alert.value for outcome in split for alert in outcome.records["fraud_alerts"]] == whole
    alerts = [json.loads(value) for value in whole]
    wanted = expected_alerts(made.expected(load_model))
    assert len(alerts) == len(wanted)
    for ours, theirs in zip(alerts, wanted, strict=True):
        validate(Contract.ALERT, ours)
        for name in ("transaction_id", "rules", "decision", "model_failure", "suspicious_count"):
            assert ours[name] == theirs[name], name
        assert ours["score"] == (
            None if theirs["score"] is None else pytest.approx(theirs["score"], abs=1e-9)
        )
        assert [r["feature"] for r in ours["reasons"]] == [r["feature"] for r in theirs["reasons"]]
    return alerts


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelRef, Load]:
    """A logistic regression, which raises on NaN, hence on the features of cards without a profile."""
    directory: Path = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{directory}/mlflow.db"
    rng = np.random.default_rng(0)
    x = rng.exponential(10.0, (400, len(NAMES)))
    used = [NAMES.index("amount"), NAMES.index("risk_tier")]
    columns = ColumnTransformer([("used", StandardScaler(), used)])
    estimator = make_pipeline(columns, LogisticRegression()).fit(x, x[:, used[0]] > 20)
    ref = registry.register(estimator, IDENTITIES, x[:50], np.median(x, axis=0), uri)
    return ref, lambda wanted: loading.load(wanted, uri, directory / "models")


@pytest.mark.integration
def test_a_registered_model_that_raises_leaves_those_cards_to_the_rules(
    registered: tuple[ModelRef, Load],
) -> None:
    ref, load_model = registered
    alerts = assert_equal_to_the_oracle(world(model=ref, threshold=0.1), load_model)
    failed = [alert for alert in alerts if alert["model_failure"]]
    scored = [alert for alert in alerts if not alert["model_failure"]]
    assert {alert["card_id"] for alert in failed} == {"c1", "c3", "c5"}
    assert {alert["card_id"] for alert in scored} == {"c0", "c2", "c4"}
    for alert in failed:
        assert (alert["score"], alert["rules"], alert["reasons"]) == (None, ["velocity_5m"], [])
        assert alert["model_failure"] == "raised"


@pytest.mark.integration
def test_failures_are_counted(registered: tuple[ModelRef, Load]) -> None:
    ref, load_model = registered
    result = world(model=ref)
    (outcome,) = result.run(load_model=load_model)
    cards = [json.loads(tx.value or b"")["card_id"] for tx in result.transactions]
    failures = sum(card in {"c1", "c3", "c5"} for card in cards)
    assert outcome.counts["scoring_failures"] == failures
    assert outcome.scores.sum() == len(cards) - failures


def raises_from(amount: float) -> Callable[[Array], Array]:
    def score(x: Array) -> Array:
        if (x[:, NAMES.index("amount")] >= amount).any():
            raise ValueError("such amounts were not in the training set")
        return np.full(len(x), 0.3)

    return score


def answers(value: object) -> Callable[[Array], Array]:
    return lambda x: np.full(len(x), value) if np.isscalar(value) else value  # type: ignore[return-value]


WRONG = {
    "raises for some": (raises_from(300.0), "raised"),
    "raises for all": (raises_from(0.0), "raised"),
    "NaN": (answers(np.nan), "no_probability"),
    "infinity": (answers(np.inf), "no_probability"),
    "below 0": (answers(-0.1), "no_probability"),
    "above 1": (answers(1.1), "no_probability"),
    "a column for each class": (lambda x: np.full((len(x), 2), 0.5), "no_probability"),
    "one number for all": (answers(np.array(0.5)), "no_probability"),
    "nothing": (answers(np.array(None)), "no_probability"),
}


@pytest.mark.unit
@pytest.mark.parametrize("name", WRONG)
def test_the_stream_continues_whatever_a_model_returns(name: str) -> None:
    score, failure = WRONG[name]
    alerts = assert_equal_to_the_oracle(world(threshold=0.2), lambda ref: foreign(score))
    failed = [alert for alert in alerts if alert["model_failure"]]
    assert {alert["model_failure"] for alert in failed} == {failure}
    assert all(alert["score"] is None and "score" not in alert["rules"] for alert in failed)
    assert (len(failed) < len(alerts)) == (name == "raises for some")


@pytest.mark.unit
def test_a_score_without_reasons_is_marked() -> None:
    def explain(x: Array) -> Array:
        if (x[:, NAMES.index("amount")] >= 300).any():
            raise KeyError("amount")
        return np.ones_like(x)

    model = foreign(lambda x: np.full(len(x), 0.9), explain)
    alerts = assert_equal_to_the_oracle(world(threshold=0.5), lambda ref: model)
    assert {alert["score"] for alert in alerts} == {0.9}
    unexplained = [alert for alert in alerts if alert["model_failure"]]
    assert {alert["model_failure"] for alert in unexplained} == {"unexplained"}
    assert all(alert["reasons"] == [] and alert["amount"] >= 300 for alert in unexplained)
    assert 0 < len(unexplained) < len(alerts)


@pytest.mark.unit
def test_failures_do_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((1000, len(NAMES)))
    bad = sorted(rng.choice(1000, 17, replace=False).tolist())
    x[bad, 0] = 999.0
    asked: list[int] = []

    def score(rows: Array) -> Array:
        asked.append(len(rows))
        if (rows[:, 0] == 999.0).any():
            raise ValueError
        return rows[:, 1]

    scores, failures = guarded.score(foreign(score), x)
    assert failures == dict.fromkeys(bad, "raised")
    assert np.isnan(scores[bad]).all()
    good = np.setdiff1d(np.arange(1000), bad)
    assert np.array_equal(scores[good], x[good, 1])
    assert len(asked) < 17 * 2 * 11  # failing batches are halved, not scored row by row


@pytest.mark.unit
@pytest.mark.parametrize("fault", [OSError("no space left"), MemoryError(), ImportError("libgomp")], ids=repr)
def test_a_failure_of_the_machine_stops_the_batch(fault: Exception) -> None:
    def score(x: Array) -> Array:
        raise fault

    with pytest.raises(ModelError, match="repair the machine, then start the job again"):
        world().run(load_model=lambda ref: foreign(score))


@pytest.mark.unit
def test_a_registry_out_of_reach_stops_a_job_that_has_no_other_model() -> None:
    def gone(ref: ModelRef) -> Scorer:
        raise ModelUnavailableError("the registry is away")

    result = world()
    result.tx(MINUTE)
    with pytest.raises(ModelUnavailableError, match="away"):
        result.run(load_model=gone)
    (outcome,) = result.run(load_model=load)
    assert outcome.counts["transactions"] == len(result.transactions)
