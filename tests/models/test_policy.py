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
        (0.1, 1, "closed", "decline", ("closed_card",)),
        (0.9, 6, None, "review", ("score", "velocity_5m")),
        (None, 6, "active", "review", ("velocity_5m",)),
        (math.nan, 1, "blocked", "decline", ("blocked_card",)),
    ],
)
def test_rules_fire_in_their_order(
    score: float | None, count_5m: int, status: str | None, decision: str, rules: tuple[str, ...]
) -> None:
    made = decide(POLICY, score, count_5m, 1, status, status is not None)
    assert made is not None
    assert (made.decision, made.rules) == (decision, rules)


@pytest.mark.parametrize(
    ("score", "count_5m", "status"),
    [(math.nextafter(0.8, 0), 5, "active"), (None, 5, None), (math.nan, 1, "active"), (0.0, 1, "active")],
)
def test_nothing_fires_below_every_limit(score: float | None, count_5m: int, status: str | None) -> None:
    assert decide(POLICY, score, count_5m, 1, status, status is not None) is None


@pytest.mark.parametrize(("by_event_time", "by_arrival"), [(6, 1), (1, 6), (6, 6)])
def test_velocity_fires_by_either_clock(by_event_time: int, by_arrival: int) -> None:
    made = decide(POLICY, 0.1, by_event_time, by_arrival, "active", True)
    assert made is not None
    assert made.rules == ("velocity_5m",)


@pytest.mark.parametrize(("status", "rule"), [("blocked", "blocked_card"), ("closed", "closed_card")])
def test_deleted_row_leaves_the_card_as_it_was(status: str, rule: str) -> None:
    careful = Policy(threshold=0.8, max_count_5m=5, missing_profile="review")
    made = decide(careful, 0.1, 1, 1, status, False)
    assert made is not None
    assert (made.decision, made.rules) == ("decline", (rule, "missing_profile"))


def test_cards_without_profile_are_reviewed_where_the_policy_says_so() -> None:
    careful = Policy(threshold=0.8, max_count_5m=5, missing_profile="review")
    for policy, score, status, rules in (
        (careful, 0.1, None, ("missing_profile",)),
        (careful, 0.9, None, ("score", "missing_profile")),
        (careful, 0.1, "active", None),
        (POLICY, 0.1, None, None),
    ):
        made = decide(policy, score, 1, 1, status, status is not None)
        assert (made and made.rules) == rules
        assert made is None or made.decision == "review"
    with pytest.raises(ModelError, match="score or review"):
        Policy(0.5, 5, "decline")


@pytest.mark.parametrize(("threshold", "limit"), [(1.1, 5), (-0.1, 5), (math.nan, 5), (0.5, 0)])
def test_a_policy_out_of_range_is_refused(threshold: float, limit: int) -> None:
    with pytest.raises(ModelError):
        Policy(threshold, limit)


def test_the_alert_id_is_pinned_for_ever() -> None:
    told = {"event_time": 1_780_000_200_000, "units": 12_345, "merchant_id": "m", "country": "FR"}
    pinned = alert_id("card-1", "tx-1", **told)  # type: ignore[arg-type]
    assert pinned != alert_id("card-1t", "x-1", **told)  # type: ignore[arg-type]
    for change in ({"event_time": 1}, {"units": 1}, {"merchant_id": "n"}, {"country": "DE"}):
        assert alert_id("card-1", "tx-1", **told | change) != pinned  # type: ignore[arg-type]
    # every consumer that has seen an alert counts on this value
    assert pinned == "14ff46cf-29fd-58ed-a7d2-6be9457e320b"
