"""Reasons, rules, threshold and decision of an alert agree with each other and with its features.

The oracle shows that the job's alerts are correct. Here only the alert is read, with the policy and the model
that it names: an analyst must see a consistent alert.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from harness.job_world import World, model_ref, scorer, subset_ref
from harness.log_world import HOUR, MINUTE
from harness.random_trials import NO_NUMBER, RAISES, load_any
from harness.random_world import random_world
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import NAMES
from feature_store.release import RELEASE
from models.parameters import DECLINE, REVIEW, SCORE
from models.policy import ESCALATED, RULES, Policy
from models.scoring import Projection, Scorer
from models.sentences.alerts import of_alert
from models.trees import Trees
from streaming_job.decide.alerts import REASONS

pytestmark = pytest.mark.unit

MODELS = {
    ref.digest: ref for ref in (model_ref("1"), model_ref("2"), subset_ref(), RAISES, NO_NUMBER)
}  # fmt: skip
STEP = 1e-9
"""Last decimal place of scores and contributions."""
STATUS_OF = {"blocked_card": "blocked", "closed_card": "closed"}


def policies(value: Any) -> Iterator[Policy]:
    """Every policy in a rollout event."""
    if isinstance(value, dict):
        if isinstance(value.get("policy"), dict):
            yield Policy.from_json(value["policy"])
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from policies(part)


def policies_of(world: World) -> dict[str, Policy]:
    """Policies of a log by their digests."""
    result = {}
    for record in world.rollouts:
        try:
            fields = json.loads(record.value or b"")
        except ValueError:
            continue
        result.update({policy.digest(): policy for policy in policies(fields)})
    return result


def values_of(alert: Mapping[str, Any]) -> np.ndarray:
    """Features, float64[1, f]."""
    return np.array(
        [[math.nan if alert["features"][name] is None else alert["features"][name] for name in NAMES]]
    )


def base_of(model: Scorer) -> float:
    """Mean log-odds of a model of trees; with a row's contributions added, the row's log-odds."""
    trees = model.classifier.classifier if isinstance(model.classifier, Projection) else model.classifier
    assert isinstance(trees, Trees)
    return float(trees.baseline[0] + trees.means[trees.roots].sum())


def check_rules(alert: Mapping[str, Any], policy: Policy) -> None:
    rules, score, values = alert["rules"], alert["score"], alert["features"]
    assert rules == [rule for rule in (*RULES, ESCALATED) if rule in rules] != []
    assert alert["release"] == RELEASE
    assert alert["threshold"] == policy.threshold
    assert (SCORE in rules) == (score is not None and score >= alert["threshold"])
    for window in ("1m", "5m", "1h"):
        most = getattr(policy, f"max_count_{window}")
        count = max(values[f"count_{window}"], values[f"arrivals_{window}"])
        assert (f"velocity_{window}" in rules) == (most is not None and count > most)
    has_profile = alert["profile"] is not None
    assert has_profile == bool(values["has_profile"])
    assert ("missing_profile" in rules) == (not has_profile and policy.missing_profile == REVIEW)
    if has_profile:
        for rule, status in STATUS_OF.items():
            asks = getattr(policy, status) != "ignore"
            assert (rule in rules) == (asks and alert["profile"]["status"] == status)
    day = alert["suspicious_count"]["day"]
    assert (ESCALATED in rules) == (policy.escalate_after is not None and day >= policy.escalate_after)
    declines = ESCALATED in rules or any(
        rule in rules and getattr(policy, status) == DECLINE for rule, status in STATUS_OF.items()
    )
    assert alert["decision"] == (DECLINE if declines else REVIEW)


def check_reasons(alert: Mapping[str, Any]) -> None:
    reasons, score = alert["reasons"], alert["score"]
    contributions = [reason["contribution"] for reason in reasons]
    assert all(reason["value"] == alert["features"][reason["feature"]] for reason in reasons)
    assert contributions == sorted(contributions, reverse=True)
    assert all(contribution > 0 for contribution in contributions)
    assert len({reason["feature"] for reason in reasons}) == len(reasons) <= REASONS
    assert (score is None) == (alert["model_failure"] is not None)
    if score is None:
        assert not reasons
        return
    model = load_any(MODELS[alert["model"]["digest"]]).on(NAMES)
    if MODELS[alert["model"]["digest"]] in (RAISES, NO_NUMBER):
        model = scorer("2")  # whose scores these models give, unless they fail
    x = values_of(alert)
    assert model.score(x)[0] == score
    raised = model.explain(x)[0]
    rounding = STEP * (len(raised) + 1 / (score * (1 - score)))
    assert base_of(model) + raised.sum() == pytest.approx(math.log(score / (1 - score)), abs=rounding)
    strongest = sorted(raised[raised > 0].tolist(), reverse=True)[:REASONS]
    assert contributions == strongest
    # a score above the model's mean has reasons; if there are fewer than REASONS of them, only
    # contributions that do not raise the score are left out, so the reasons' sum is at least that of all
    if math.log(score / (1 - score)) > base_of(model):
        assert reasons
        assert len(strongest) == REASONS or sum(contributions) >= raised.sum() - rounding


def check_sentences(alert: Mapping[str, Any]) -> None:
    sentences = of_alert(alert)
    assert sentences
    assert len(set(sentences)) == len(sentences)
    text = "; ".join(sentences)
    assert ("the model failed" in text) == (alert["model_failure"] is not None)
    assert ("the card is blocked" in sentences) == ("blocked_card" in alert["rules"])
    assert ("the card is closed" in sentences) == ("closed_card" in alert["rules"])
    assert ("more than the policy allows" in text) == any("velocity" in rule for rule in alert["rules"])
    match = re.search(r"score ([\d.]+).*the threshold is ([\d.]+)", text)
    assert match is None or float(match[1]) >= float(match[2])
    assert match is None or SCORE in alert["rules"]


def check_percentiles(alerts: list[dict[str, Any]]) -> None:
    """A higher score of a model has no lower percentile."""
    for digest in {alert["model"]["digest"] for alert in alerts}:
        mine = [
            (alert["score"], alert["score_percentile"])
            for alert in alerts
            if alert["model"]["digest"] == digest and alert["score"] is not None
        ]
        ranks = [rank for _, rank in sorted(mine, key=lambda pair: (pair[0], pair[1] or 0.0))]
        assert len({rank is None for rank in ranks}) <= 1
        assert ranks == sorted(ranks, key=lambda rank: rank or 0.0)


def check_one(alert: Mapping[str, Any], policy: Policy) -> None:
    check_rules(alert, policy)
    check_reasons(alert)
    check_sentences(alert)


def check(world: World) -> list[dict[str, Any]]:
    """Check all alerts of a log; return them."""
    known = policies_of(world)
    cuts = tuple(cut for cut in (40, 90) if cut < len(world.transactions))
    outcomes = world.run(cuts, load_model=load_any)
    sent = [json.loads(alert.value) for outcome in outcomes for alert in outcome.records["fraud_alerts"]]
    held = [json.loads(alert.value) for outcome in outcomes for alert in outcome.records["suppressed_alerts"]]
    for alert in (*sent, *held):
        check_one(alert, known[alert["policy"]])
    assert all(alert["decision"] == REVIEW for alert in held)
    check_percentiles([*sent, *held])
    return [*sent, *held]


@examples(12, thorough=1000)
@given(st.integers(0, 2**32))
def test_reasons_threshold_and_decision_never_contradict_each_other(seed: int) -> None:
    check(random_world(seed, trials=True))


def test_the_alerts_cover_every_rule_and_outcome() -> None:
    alerts = [alert for seed in range(12) for alert in check(random_world(seed, trials=True))]
    assert len(alerts) > 200
    assert {rule for alert in alerts for rule in alert["rules"]} == {*RULES, ESCALATED}
    assert {alert["decision"] for alert in alerts} == {REVIEW, DECLINE}
    assert {alert["role"] for alert in alerts} == {"champion", "canary"}
    assert {alert["score"] is None for alert in alerts} == {True, False}
    assert {bool(alert["reasons"]) for alert in alerts} == {True, False}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("score", 0.001), ("threshold", 0.999), ("rules", ["velocity_5m"]), ("decision", DECLINE),
        ("reasons", [{"feature": "amount", "value": 1.0, "contribution": 0.5}]),
        ("reasons", []), ("model_failure", "raised"),
    ],
)  # fmt: skip
def test_an_inconsistent_alert_fails_the_check(field: str, value: Any) -> None:
    world = World(rollout=False)
    world.rollout("r1", -HOUR, threshold=0.3)
    world.tx(MINUTE, 499.0)
    (alert,) = check(world)
    known = policies_of(world)
    alert[field] = value
    with pytest.raises(AssertionError):
        check_one(alert, known[alert["policy"]])
