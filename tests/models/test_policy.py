"""The policy's rules, their order and the alert's identity."""

import math
import uuid
from dataclasses import replace

import pytest

from models.errors import ModelError
from models.policy import ALERT_NAMESPACE, Decision, Policy, alert_id, decide
from models.rules.rule import Known

pytestmark = pytest.mark.unit
POLICY = Policy(threshold=0.8, max_count_5m=5)


def decided(
    policy: Policy,
    score: float | None,
    count_5m: int = 1,
    arrivals_5m: int = 1,
    status: str | None = "active",
    *,
    has_profile: bool | None = None,
    day: int = 0,
    **counts: int,
) -> Decision | None:
    """The decision on a transaction, None without alert; counts that are not given are 1."""
    quiet = {f"{kind}_{window}": 1 for kind in ("count", "arrivals") for window in ("1m", "5m", "1h")}
    features = {**quiet, "count_5m": count_5m, "arrivals_5m": arrivals_5m, **counts}
    there = status is not None if has_profile is None else has_profile
    return decide(policy, Known(score, features, status, there), day)


@pytest.mark.parametrize(
    ("score", "count_5m", "status", "decision", "rules"),
    [
        (0.8, 1, "active", "review", ("score",)),
        (0.1, 6, "active", "review", ("velocity_5m",)),
        (0.1, 1, "blocked", "decline", ("blocked_card",)),
        (0.9, 6, "blocked", "decline", ("score", "velocity_5m", "blocked_card")),
        (0.1, 1, "closed", "decline", ("closed_card",)),
        (0.9, 6, None, "review", ("score", "velocity_5m")),
        (None, 6, "active", "review", ("velocity_5m",)),
        (math.nan, 1, "blocked", "decline", ("blocked_card",)),
    ],
)
def test_rules_fire_in_their_order(
    score: float | None, count_5m: int, status: str | None, decision: str, rules: tuple[str, ...]
) -> None:
    result = decided(POLICY, score, count_5m, 1, status)
    assert result is not None
    assert (result.decision, result.rules) == (decision, rules)


@pytest.mark.parametrize(
    ("score", "count_5m", "status"),
    [(math.nextafter(0.8, 0), 5, "active"), (None, 5, None), (math.nan, 1, "active"), (0.0, 1, "active")],
)
def test_no_rule_fires_below_every_limit(score: float | None, count_5m: int, status: str | None) -> None:
    assert decided(POLICY, score, count_5m, 1, status) is None


@pytest.mark.parametrize(("by_event_time", "by_arrival"), [(6, 1), (1, 6), (6, 6)])
def test_velocity_fires_by_either_clock(by_event_time: int, by_arrival: int) -> None:
    result = decided(POLICY, 0.1, by_event_time, by_arrival)
    assert result is not None
    assert result.rules == ("velocity_5m",)


@pytest.mark.parametrize(("status", "rule"), [("blocked", "blocked_card"), ("closed", "closed_card")])
def test_deleted_row_leaves_the_card_as_it_was(status: str, rule: str) -> None:
    careful = Policy(threshold=0.8, max_count_5m=5, missing_profile="review")
    result = decided(careful, 0.1, status=status, has_profile=False)
    assert result is not None
    assert (result.decision, result.rules) == ("decline", (rule, "missing_profile"))


def test_cards_without_profile_are_reviewed_if_the_policy_says_so() -> None:
    careful = Policy(threshold=0.8, max_count_5m=5, missing_profile="review")
    for policy, score, status, rules in (
        (careful, 0.1, None, ("missing_profile",)),
        (careful, 0.9, None, ("score", "missing_profile")),
        (careful, 0.1, "active", None),
        (POLICY, 0.1, None, None),
    ):
        result = decided(policy, score, status=status)
        assert (result and result.rules) == rules
        assert result is None or result.decision == "review"
    with pytest.raises(ModelError, match="score or review"):
        Policy(0.5, 5, "decline")


@pytest.mark.parametrize("window", ["1m", "1h"])
def test_velocity_of_other_windows_is_a_rule_if_the_policy_has_it(window: str) -> None:
    strict = Policy(0.8, 5, **{f"max_count_{window}": 3})  # type: ignore[arg-type]
    for clock in ("count", "arrivals"):
        many = {f"{clock}_{window}": 4}
        assert decided(strict, 0.1, **many) == Decision("review", (f"velocity_{window}",))  # type: ignore[arg-type]
        assert decided(POLICY, 0.1, **many) is None  # type: ignore[arg-type]
        assert decided(strict, 0.1, **{f"{clock}_{window}": 3}) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["blocked", "closed"])
def test_the_policy_decides_about_blocked_and_closed_cards(status: str) -> None:
    rule = f"{status}_card"
    for mode, result in (("decline", Decision("decline", (rule,))), ("review", Decision("review", (rule,)))):
        assert decided(replace(POLICY, **{status: mode}), 0.1, status=status) == result  # type: ignore[arg-type]
    ignoring = replace(POLICY, **{status: "ignore"})  # type: ignore[arg-type]
    assert decided(ignoring, 0.1, status=status) is None
    assert decided(ignoring, 0.9, status=status) == Decision("review", ("score",))


def test_an_alert_above_the_limit_of_a_day_is_a_decline() -> None:
    strict = replace(POLICY, escalate_after=3)
    assert decided(strict, 0.9, day=1) == Decision("review", ("score",))
    assert decided(strict, 0.9, day=2) == Decision("decline", ("score", "escalated"))
    assert decided(strict, 0.1, day=9) is None
    assert decided(POLICY, 0.9, day=9) == Decision("review", ("score",))


@pytest.mark.parametrize("value", [True, "1", [1], {}, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name", ["threshold", "max_count_5m", "max_count_1h", "escalate_after", "cooldown_s"]
)
def test_what_is_no_number_is_refused_not_converted(name: str, value: object) -> None:
    with pytest.raises(ModelError, match=name):
        Policy.from_json({"threshold": 0.8, "max_count_5m": 5, name: value})


def test_a_fraction_of_a_whole_number_is_refused_not_cut_off() -> None:
    for name, value in (("max_count_5m", 6.9), ("escalate_after", 1.5), ("cooldown_s", 0.9)):
        with pytest.raises(ModelError, match=f"{name} {value} is no whole number"):
            Policy.from_json({"threshold": 0.8, "max_count_5m": 5, name: value})


def test_the_digest_depends_on_the_content_of_the_policy() -> None:
    assert POLICY.digest() == Policy.from_json({"threshold": 0.8, "max_count_5m": 5.0, "more": 1}).digest()
    changes = (
        {"threshold": 0.7}, {"max_count_5m": 6}, {"missing_profile": "review"}, {"max_count_1m": 2},
        {"max_count_1h": 2}, {"blocked": "review"}, {"closed": "ignore"},
        {"escalate_after": 2}, {"cooldown_s": 1},
    )  # fmt: skip
    digests = {replace(POLICY, **change).digest() for change in changes}  # type: ignore[arg-type]
    assert len(digests | {POLICY.digest()}) == len(changes) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_count_1m": 0}, {"max_count_1h": 0}, {"blocked": "Review"}, {"closed": "score"},
        {"escalate_after": 0}, {"cooldown_s": -1}, {"cooldown_s": 31 * 86_400 + 1},
    ],
)  # fmt: skip
def test_rules_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ModelError, match=name):
        replace(POLICY, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("threshold", "limit"), [(1.1, 5), (-0.1, 5), (math.nan, 5), (0.5, 0)])
def test_a_policy_out_of_range_is_refused(threshold: float, limit: int) -> None:
    with pytest.raises(ModelError):
        Policy(threshold, limit)


def test_the_alert_id_never_changes() -> None:
    fields = {
        "event_time": 1_780_000_200_000, "units": 12_345, "merchant_id": "m", "country": "FR",
        "currency": "EUR",
    }  # fmt: skip
    pinned = alert_id("card-1", "tx-1", **fields)  # type: ignore[arg-type]
    assert pinned != alert_id("card-1t", "x-1", **fields)  # type: ignore[arg-type]
    for change in (
        {"event_time": 1}, {"units": 1}, {"merchant_id": "n"}, {"country": "DE"}, {"currency": "JPY"}
    ):  # fmt: skip
        assert alert_id("card-1", "tx-1", **fields | change) != pinned  # type: ignore[arg-type]
    # every consumer that has read an alert relies on this value
    assert pinned == "e2e46842-b211-5f8b-880b-cc9bc1e96047"
    content = "\x00".join(("card-1", "tx-1", "1780000200000", "12345", "m", "FR", "EUR"))
    assert pinned == str(uuid.uuid5(ALERT_NAMESPACE, content))
