"""The policy's rules, their order and the alert's identity."""

import math

import pytest

from models.errors import ModelError
from models.policy import RULES, Policy, alert_id, decide

pytestmark = pytest.mark.unit
POLICY = Policy(threshold=0.8, max_count_5m=5)


@pytest.mark.parametrize(
    ("score", "count_5m", "status", "decision", "rules"),
    [
        (0.8, 1, "active", "review", ("score",)),
        (0.1, 6, "active", "review", ("velocity_5m",)),
        (0.1, 1, "blocked", "decline", ("blocked_card",)),
        (0.9, 6, "blocked", "decline", RULES[:3]),
        (0.9, 6, None, "review", ("score", "velocity_5m")),
        (None, 6, "active", "review", ("velocity_5m",)),
        (math.nan, 1, "blocked", "decline", ("blocked_card",)),
    ],
)
def test_rules_fire_in_their_order(
    score: float | None, count_5m: int, status: str | None, decision: str, rules: tuple[str, ...]
) -> None:
    made = decide(POLICY, score, count_5m, status)
    assert made is not None
    assert (made.decision, made.rules) == (decision, rules)


@pytest.mark.parametrize(
    ("score", "count_5m", "status"),
    [(math.nextafter(0.8, 0), 5, "active"), (None, 5, None), (math.nan, 1, "closed"), (0.0, 1, "active")],
)
def test_nothing_fires_below_every_limit(score: float | None, count_5m: int, status: str | None) -> None:
    assert decide(POLICY, score, count_5m, status) is None


def test_cards_without_profile_are_reviewed_where_the_policy_says_so() -> None:
    careful = Policy(threshold=0.8, max_count_5m=5, missing_profile="review")
    for policy, score, status, rules in (
        (careful, 0.1, None, ("missing_profile",)),
        (careful, 0.9, None, ("score", "missing_profile")),
        (careful, 0.1, "active", None),
        (POLICY, 0.1, None, None),
    ):
        made = decide(policy, score, 1, status)
        assert (made and made.rules) == rules
        assert made is None or made.decision == "review"
    with pytest.raises(ModelError, match="score or review"):
        Policy(0.5, 5, "decline")


@pytest.mark.parametrize(("threshold", "limit"), [(1.1, 5), (-0.1, 5), (math.nan, 5), (0.5, 0)])
def test_a_policy_out_of_range_is_refused(threshold: float, limit: int) -> None:
    with pytest.raises(ModelError):
        Policy(threshold, limit)


def test_the_alert_id_is_pinned_for_ever() -> None:
    assert alert_id("card-1", "tx-1") == alert_id("card-1", "tx-1")
    assert alert_id("card-1", "tx-1") != alert_id("card-1t", "x-1")
    # every consumer that has seen an alert counts on this value
    assert alert_id("card-1", "tx-1") == "4c6d635a-5e63-547c-bb24-bf554a391222"
