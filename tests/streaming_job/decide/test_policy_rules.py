"""Every rule and parameter of a policy: vectorised and scalar form, contract, sentence, and the oracle."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.catalogue import NAMES
from feature_store.layout import STATUSES
from loadtests.oracle import policies
from models.errors import ModelError
from models.parameters import DECLINE, Action, Limit, Parameter, Probability, Seconds
from models.policy import ESCALATED, PARAMETERS, RULES, Policy, decide
from models.rollouts.authority import weaker
from models.rules.rule import Known, KnownBlock
from models.sentences.alerts import of_rule
from streaming_job.contracts import shared
from streaming_job.decide.verdicts import verdicts

pytestmark = pytest.mark.unit
ROWS = 12


def values(parameter: Parameter) -> st.SearchStrategy[Any]:
    """Valid values of a parameter."""
    match parameter:
        case Probability():
            return st.sampled_from([0.0, 0.3, 0.5, 1.0])
        case Limit(is_optional=is_optional):
            return st.integers(1, 6) | st.none() if is_optional else st.integers(1, 6)
        case Action(words=words):
            return st.sampled_from(words)
        case Seconds(most=most):
            return st.sampled_from([0, 1, most])
    raise AssertionError(parameter)


POLICIES = st.builds(Policy, **{name: values(parameter) for name, parameter in PARAMETERS.items()})


@examples(150)
@given(POLICIES, st.integers(0, 2**32), st.integers(1, 7))
def test_the_two_forms_of_the_rules_agree(policy: Policy, seed: int, day: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 9, (ROWS, len(NAMES))).astype(float)
    scores = rng.choice([0.0, 0.3, 0.5, math.nan, 1.0], ROWS)
    standing, without = rng.integers(0, 3, ROWS).astype(np.uint8), rng.random(ROWS) < 0.5
    made = verdicts(policy, scores, KnownBlock(features, standing, without))
    for row in range(ROWS):
        values = dict(zip(NAMES, features[row].tolist(), strict=True))
        known = Known(float(scores[row]), values, STATUSES[standing[row]], not without[row])
        decision, rules = decide(policy, known, day - 1), made.rules(row, day)
        assert bool(made.alerts[row]) == bool(rules) == (decision is not None)
        if decision is not None:
            assert rules == decision.rules
            assert made.declines(rules) == (decision.decision == DECLINE)
            assert not made.declined[row] or decision.decision == DECLINE


@examples(150)
@given(POLICIES, POLICIES)
def test_job_and_oracle_read_policies_alike_and_agree_on_which_is_weaker(
    policy: Policy, other: Policy
) -> None:
    written = json.loads(json.dumps(asdict(policy)))
    assert policies.read(written) == Policy.from_json(written) == policy
    assert policies.lets_more_through(policy, other) == bool(weaker(policy, other))


@pytest.mark.parametrize("name", PARAMETERS)
def test_both_readers_refuse_a_value_that_makes_no_sense(name: str) -> None:
    for read in (policies.read, Policy.from_json):
        with pytest.raises((ModelError, ValueError)):
            read({"threshold": 0.5, "max_count_5m": 3, name: -1})


def test_the_shared_schema_lists_the_rules_and_the_parameters() -> None:
    definitions = shared()["$defs"]
    assert definitions["rule"]["enum"] == [*RULES, ESCALATED]
    assert set(definitions["policy"]["properties"]) == set(PARAMETERS)
    assert all(rule.name == name for name, rule in RULES.items())


@pytest.mark.parametrize("rule", [*RULES, ESCALATED])
def test_a_rule_has_a_sentence(rule: str) -> None:
    alert = {
        "score": 0.5, "threshold": 0.5, "suspicious_count": {"day": 3}, "features": dict.fromkeys(NAMES, 7.0),
        "currency": "EUR", "amount": 7.0,
    }  # fmt: skip
    assert of_rule(rule, alert) != rule
