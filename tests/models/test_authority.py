"""Events that count as promotions by their effect; with four eyes one person is not enough for them."""

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from harness.rollout_records import challenger, event, proposed
from hypothesis import given
from hypothesis import strategies as st

from models.guards import floor
from models.guards import policy as guards_policy
from models.guards.counts import PairedCounts
from models.guards.findings import GuardOutcome
from models.guards.verdict import verdict
from models.parameters import DECLINE
from models.policy import Policy, decide
from models.registry import ModelRef
from models.rollouts import authority
from models.rollouts.events import NO_DEMANDS, Demands, Event, Type, installation
from models.rollouts.machine import ConflictError, apply
from models.rollouts.state import Line
from models.rules.rule import Known
from streaming_job.contracts import Reason

pytestmark = pytest.mark.unit

CHAMPION = Policy(0.5, 6, "review", 3, 20, "decline", "decline", 3, 60)
COUNTS = st.none() | st.integers(1, 5)
POLICIES = st.builds(
    Policy,
    st.sampled_from([0.2, 0.5, 0.8]), st.integers(1, 5), st.sampled_from(["score", "review"]), COUNTS, COUNTS,
    st.sampled_from(["decline", "review", "ignore"]), st.sampled_from(["decline", "review", "ignore"]),
    COUNTS, st.just(0),
)  # fmt: skip


def model(version: str) -> ModelRef:
    digest = (version * 64)[:64]
    return ModelRef("card-fraud", version, f"models:/card-fraud/{version}", digest, ("amount:1",))


def line_of(
    *more: Event, policy: Policy = CHAMPION, demands: Demands = NO_DEMANDS, **of_proposal: Any
) -> Line:
    """The rollouts with a champion, and with the rollout `r` of ada in shadow, followed by more events."""
    made = [
        *installation(model("1"), CHAMPION, "first", "me", 0),
        replace(
            proposed("r", challenger(model("2"), policy=policy), demands=demands, **of_proposal), actor="ada"
        ),
        event(Type.SHADOW_STARTED, "r", 2),
    ]
    return reduce(apply, [*made, *more], Line())


def canary(share_bp: int, seq: int = 3) -> Event:
    return event(Type.CANARY_SET, "r", seq, share_bp=share_bp)


def by(person: str, made: Event) -> Event:
    """The event, taken and approved by a person."""
    return replace(made, actor=person, approved_by=person)


def refusal(line: Line, made: Event) -> Reason | None:
    try:
        apply(line, made)
    except ConflictError as conflict:
        return conflict.reason
    return None


def counts_as_promotion(line: Line, made: Event) -> bool:
    return bool(authority.promotion(line, made, 1_000))


@pytest.mark.parametrize(
    ("share_bp", "promotes"), [(1, False), (1_000, False), (1_001, True), (10_000, True)]
)
def test_a_share_above_the_limit_is_a_promotion(share_bp: int, promotes: bool) -> None:
    assert counts_as_promotion(line_of(), canary(share_bp)) is promotes


@pytest.mark.parametrize(
    "weaker",
    [
        {"threshold": 0.51}, {"max_count_5m": 7}, {"max_count_1m": None}, {"max_count_1m": 4},
        {"max_count_1h": 21}, {"blocked": "ignore"}, {"blocked": "review"}, {"closed": "ignore"},
        {"missing_profile": "score"}, {"escalate_after": None}, {"escalate_after": 4}, {"cooldown_s": 61},
    ],
    ids=str,
)  # fmt: skip
def test_any_share_for_a_weaker_policy_is_a_promotion_but_a_shadow_is_not(weaker: dict[str, Any]) -> None:
    line = line_of(policy=replace(CHAMPION, **weaker))  # in shadow: proposing and shadowing are free
    assert counts_as_promotion(line, canary(1))
    assert authority.promotion(line, canary(1), 10_000)[0].startswith(f"policy: {next(iter(weaker))} ")


def test_a_stricter_policy_is_no_promotion() -> None:
    assert not counts_as_promotion(
        line_of(policy=Policy(0.4, 1, "review", 1, 1, escalate_after=1)), canary(1)
    )


@given(
    POLICIES, POLICIES, st.none() | st.sampled_from([0.1, 0.3, 0.6, 0.9]),
    st.lists(st.integers(1, 7), min_size=6, max_size=6),
    st.sampled_from(["active", "blocked", "closed", None]), st.booleans(), st.integers(0, 6),
)  # fmt: skip
def test_a_policy_that_is_not_weaker_lets_nothing_more_through(
    policy: Policy,
    champion: Policy,
    score: float | None,
    counts: list[int],
    status: str | None,
    has: bool,
    day: int,
) -> None:
    if authority.weaker(policy, champion):
        return
    names = (f"{kind}_{window}" for kind in ("count", "arrivals") for window in ("1m", "5m", "1h"))
    case = Known(score, dict(zip(names, counts, strict=True)), status, has), day
    before, after = decide(champion, *case), decide(policy, *case)
    assert before is None or after is not None
    assert before is None or before.decision != DECLINE or after is None or after.decision == DECLINE


@pytest.mark.parametrize(
    ("guards", "promotes"),
    [
        (None, False),
        ({}, False),
        ({"rules": [{"name": "scoring_time", "max_ratio": 1_000}]}, True),
        ({"rules": [{"name": "alert_rate", "max_ratio": 2}]}, True),
        ({"rules": [{"name": "alert_rate", "max_ratio": 2, "min_ratio": 0.05}]}, True),
        ({"rules": [{"name": "alert_rate", "max_ratio": 2, "min_ratio": 0.1}]}, False),
        ({"rules": [{"name": "score_drift", "max_psi": 0.25}]}, True),
        ({"alpha": 1e-9}, True),
        ({"deadline_h": 8_760}, True),
        ({"min_card_hours": 1}, True),
        ({"alpha": "none"}, True),
    ],
    ids=str,
)
def test_any_share_under_guards_below_the_floor_is_a_promotion(
    guards: dict[str, Any] | None, promotes: bool
) -> None:
    assert counts_as_promotion(line_of(guards=guards), canary(1)) is promotes


ONE_SIDED = {"both": 0, "only_champion": 200, "only_challenger": 0}
BOUNDS = [0.1, 0.2, 0.3, 0.4, 0.5]
SILENT = PairedCounts.from_json(
    {
        "transactions": 20_000, "decided": 0, "failures": 0, **ONE_SIDED, "card_hours": ONE_SIDED,
        "cards": ONE_SIDED,
        "rows": 20_000, "time_ms": 1.0, "champion_time_ms": 1.0,
        "scores": {"le": BOUNDS, "counts": [19_000, 400, 200, 200, 200, 0], "sum": 1.0},
        "champion_scores": {"le": BOUNDS, "counts": [19_000, 400, 200, 200, 0, 200], "sum": 1.0},
    }
)  # fmt: skip
"""Where the champion's scores are above 0.5, its threshold, the challenger's are just below."""


def test_guards_at_the_floor_end_a_rollout_whose_challenger_has_fallen_silent() -> None:
    """The weakest guard that the floor admits is breached by a challenger without alerts."""
    least = guards_policy.read(
        {
            "alpha": floor.LEAST_ALPHA,
            "rules": [{"name": "alert_rate", "max_ratio": 100, "min_ratio": floor.LEAST_RATIO}],
        }
    )
    assert floor.weaknesses(least) == ()
    assert verdict(SILENT, least).outcome is GuardOutcome.BREACH


def test_a_challenger_that_has_fallen_silent_passes_the_guard_on_drift() -> None:
    """So that guard alone is below the floor: the champion's few alerts hardly move the index."""
    drift = guards_policy.read({"rules": [{"name": "score_drift", "max_psi": 0.25}]})
    assert floor.weaknesses(drift)
    assert verdict(SILENT, drift).outcome is GuardOutcome.PASS


def test_what_gives_no_new_power_is_no_promotion() -> None:
    given_share = line_of(canary(3_000))
    for made in (
        canary(3_000, 4),
        canary(2_999, 4),
        event(Type.PAUSED, "r", 4),
        event(Type.ROLLED_BACK, "r", 4),
    ):
        assert not counts_as_promotion(given_share, made)
    assert counts_as_promotion(given_share, canary(3_001, 4))


def test_resuming_counts_like_the_share_that_it_restores() -> None:
    for share_bp, promotes in ((1_000, False), (3_000, True)):
        paused = line_of(canary(share_bp), event(Type.PAUSED, "r", 4))
        assert counts_as_promotion(paused, event(Type.RESUMED, "r", 5)) is promotes
    paused = line_of(event(Type.PAUSED, "r", 3))
    assert not counts_as_promotion(paused, event(Type.RESUMED, "r", 4))


def test_a_withdrawal_counts_if_it_restores_a_weaker_policy() -> None:
    for threshold, promotes in ((0.4, True), (0.6, False)):
        line = line_of(event(Type.PROMOTED, "r", 3), policy=replace(CHAMPION, threshold=threshold))
        withdrawal = event(Type.WITHDRAWN, "r", 4)
        assert counts_as_promotion(line, withdrawal) is promotes
        assert authority.needs_admin(line, withdrawal, 1_000)


FOUR_EYES = Demands(four_eyes=True)


@pytest.mark.parametrize("made", [canary(1_001), event(Type.PROMOTED, "r", 3)], ids=lambda made: made.type)
def test_with_four_eyes_a_promotion_needs_somebody_who_did_not_propose_it(made: Event) -> None:
    line = line_of(demands=FOUR_EYES)
    assert refusal(line, made) is Reason.SECOND_PERSON_MISSING
    assert refusal(line, by("ada", made)) is Reason.SECOND_PERSON_MISSING
    assert refusal(line, replace(by("ada", made), approved_by="bob")) is Reason.SECOND_PERSON_MISSING
    assert refusal(line, by("bob", made)) is None
    assert refusal(line_of(), made) is None
    assert refusal(line, canary(1_000)) is None


def test_with_four_eyes_a_resumption_needs_a_second_person_again() -> None:
    paused = line_of(by("bob", canary(5_000)), event(Type.PAUSED, "r", 4), demands=FOUR_EYES)
    resumed = event(Type.RESUMED, "r", 5)
    assert refusal(paused, by("ada", resumed)) is Reason.SECOND_PERSON_MISSING
    assert refusal(paused, by("bob", resumed)) is None


def test_with_four_eyes_a_withdrawal_to_a_weaker_policy_needs_somebody_who_did_not_propose_that_one() -> None:
    promoted = line_of(
        by("bob", event(Type.PROMOTED, "r", 3)), policy=replace(CHAMPION, threshold=0.4), demands=FOUR_EYES
    )
    withdrawal = event(Type.WITHDRAWN, "r", 4)
    assert refusal(promoted, by("me", withdrawal)) is Reason.SECOND_PERSON_MISSING
    assert refusal(promoted, by("ada", withdrawal)) is None


def test_no_event_ends_a_rollout_only_with_a_second_person() -> None:
    line = line_of(by("bob", canary(5_000)), demands=FOUR_EYES)
    for kind in (Type.PAUSED, Type.BREACHED, Type.ROLLED_BACK):
        assert refusal(line, event(kind, "r", 4)) is None


def test_a_demand_tightens_at_once_and_loosens_only_with_a_promotion() -> None:
    strict = Demands(four_eyes=True, operator_max_share_bp=500)
    line = apply(line_of(demands=strict), event(Type.ROLLED_BACK, "r", 3))
    assert line.demands == strict
    loose = replace(
        proposed("q", challenger(model("3"), policy=CHAMPION), demands=Demands(False, 2_000)), actor="ada"
    )
    line = apply(line, loose)
    assert line.demands == strict
    promoted = event(Type.PROMOTED, "q", 2)
    assert refusal(line, promoted) is Reason.SECOND_PERSON_MISSING
    assert apply(line, by("bob", promoted)).demands == Demands(False, 2_000)
