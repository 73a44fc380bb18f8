"""The oracle's reading of the rollout topic: refused events, their reasons, the plan at an arrival."""

from typing import Any

import pytest
from harness.log_world import START
from oracle_world import World, challenger, model

from loadtests.oracle import RolloutLog
from loadtests.oracle.rollouts import Plan
from models.errors import ModelError, ModelMissingError
from streaming_job.contracts import Reason

pytestmark = pytest.mark.unit


def folded(world: World, **options: Any) -> tuple[RolloutLog, list[Reason | None]]:
    """The rollouts of a log, and for each record the reason of its refusal; None if it is not refused."""
    log = RolloutLog(**options)
    refused = {outcome.offset: outcome.reason for outcome in log.read(world.rollouts)}
    return log, [refused.get(record.offset) for record in world.rollouts]


def reasons(world: World) -> list[Reason | None]:
    """Reasons (None: not refused) of the records after the first champion's two and a proposal."""
    return folded(world)[1][3:]


@pytest.fixture
def world() -> World:
    """A world in which model 1 decides; model 2 is proposed as canary b, model 3 as shadow s."""
    world = World()
    world.propose("x", challenger(), challenger("s", "3", role="shadow"))
    return world


def scored(plan: Plan | None) -> tuple[str, list[str], str, int]:
    assert plan is not None
    return (
        plan.champion.rollout_id,
        [scored_one.challenger for scored_one in plan.challengers],
        plan.canary,
        plan.share_bp,
    )


def test_phases_from_shadow_to_promotion(world):
    """START + 1 shadow, 2 canary, 3 larger canary, 4 paused, 5 resumed, 6 promoted, 7 withdrawn"""
    world.event("shadow_started", "x", 2, arrival=1)
    world.event("canary_set", "x", 3, arrival=2, challenger="b", share_bp=100)
    world.event("canary_set", "x", 4, arrival=3, challenger="b", share_bp=2_000)
    world.event("paused", "x", 5, arrival=4)
    world.event("resumed", "x", 6, arrival=5)
    world.event("promoted", "x", 7, arrival=6, challenger="b")
    world.event("withdrawn", "x", 8, arrival=7, from_the_beginning=False)
    log, refused = folded(world)
    assert refused == [None] * 10
    assert [scored(log.plan(START + at)) for at in range(-1, 8)] == [
        ("r1", [], "", 0),
        ("r1", [], "", 0),
        ("r1", ["b", "s"], "", 0),
        ("r1", ["b", "s"], "b", 100),
        ("r1", ["b", "s"], "b", 2_000),
        ("r1", ["b", "s"], "", 0),
        ("r1", ["b", "s"], "b", 2_000),
        ("x", [], "", 0),
        ("r1", [], "", 0),
    ]
    plan = log.plan(START + 3)
    assert (plan.champion.seq, {scored_one.seq for scored_one in plan.challengers}, plan.trial) == (
        2,
        {4},
        "x",
    )
    assert plan.salt == "card-fraud/card-fraud"
    assert (log.plan(START + 6).champion.seq, log.plan(START + 6).champion.model.version) == (7, "2")


@pytest.mark.parametrize(
    "before",
    [
        [],
        ["shadow_started"],
        ["shadow_started", "canary_set"],
        ["shadow_started", "paused"],
        ["shadow_started", "breached"],
    ],
)
def test_rolled_back_from_every_phase_that_is_not_final_whatever_was_expected(world, before):
    fields = {"canary_set": {"challenger": "b", "share_bp": 100}}
    fields["breached"] = {"challenger": "b", "guard": "failures", "verdict": {}}
    for seq, kind in enumerate(before, 2):
        world.event(kind, "x", seq, **fields.get(kind, {}))
    world.event("rolled_back", "x", 99)
    world.event("rolled_back", "x", 100)
    assert reasons(world) == [None] * (len(before) + 1) + [Reason.ROLLOUT_CONFLICT]


def test_after_a_breach_only_the_champion_scores(world):
    world.event("shadow_started", "x", 2)
    world.event("breached", "x", 3, arrival=1, challenger="b", guard="failures", verdict={})
    world.event("rolled_back", "x", 4, arrival=2)
    log, refused = folded(world)
    assert refused[3:] == [None] * 3
    assert [scored(log.plan(START + at))[1] for at in (0, 1, 2)] == [["b", "s"], [], []]


@pytest.mark.parametrize(
    ("kind", "seq", "fields", "reason"),
    [
        ("shadow_started", 3, {}, Reason.ROLLOUT_CONFLICT),
        ("shadow_started", 1, {}, Reason.ROLLOUT_CONFLICT),
        ("canary_set", 2, {"challenger": "b", "share_bp": 1}, Reason.ROLLOUT_CONFLICT),
        ("paused", 2, {}, Reason.ROLLOUT_CONFLICT),
        ("resumed", 2, {}, Reason.ROLLOUT_CONFLICT),
        ("withdrawn", 2, {"from_the_beginning": True}, Reason.ROLLOUT_CONFLICT),
        ("promoted", 2, {"challenger": "z"}, Reason.ROLLOUT_CONFLICT),
        ("rolled_back", 1, {}, Reason.ROLLOUT_CONFLICT),
        ("shadow_started", 2, {"idempotency_key": "proposed-1"}, Reason.ROLLOUT_CONFLICT),
        ("shadow_started", 2, {"rollout_id": "y"}, Reason.UNKNOWN_ROLLOUT),
        ("shadow_started", 2, {"expected_seq": 0}, Reason.INVALID_VALUE),
        ("shadow_started", 2, {"schema_version": 3}, Reason.INVALID_VALUE),
        ("shadow_started", 2, {"schema_version": 1}, Reason.INVALID_VALUE),
        ("shadow_started", 2, {"schema_version": True}, Reason.INVALID_VALUE),
        ("shadow_started", 2, {"actor": ""}, Reason.INVALID_VALUE),
        ("shadow_started", 2, {"share_bp": 0}, Reason.INVALID_VALUE),
        ("shadow_started", 2, {"reason": "\ud800"}, Reason.INVALID_VALUE),
        (
            "breached",
            2,
            {"challenger": "b", "guard": "g", "verdict": {"x": float("nan")}},
            Reason.INVALID_VALUE,
        ),
        ("promoted", 2, {}, Reason.INVALID_VALUE),
        ("halted", 2, {}, Reason.INVALID_VALUE),
        ("promoted", 2, {"challenger": "s"}, None),
        ("shadow_started", 2.0, {"colour": "red", "expected_seq": 1.0}, None),
    ],
)
def test_events_that_cannot_follow_are_refused_with_their_reason(world, kind, seq, fields, reason):
    rollout_id = fields.pop("rollout_id", "x")
    world.event(kind, rollout_id, seq, **fields)
    assert reasons(world) == [reason]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"champion": None}, Reason.ROLLOUT_CONFLICT),
        ({"champion": model("2")}, Reason.ROLLOUT_CONFLICT),
        ({"champion": model("2"), "any_champion": True}, None),
        ({"challengers": [challenger(), challenger()]}, Reason.INVALID_VALUE),
        ({"challengers": [challenger(), challenger("c")]}, Reason.INVALID_VALUE),
        ({"challengers": []}, Reason.INVALID_VALUE),
        ({"challengers": [challenger(str(n), role="shadow") for n in range(5)]}, Reason.INVALID_VALUE),
        ({"challengers": [challenger(threshold=1.5)]}, Reason.INVALID_VALUE),
        ({"challengers": [challenger(blocked="sing")]}, Reason.INVALID_VALUE),
        ({"challengers": [challenger(cooldown_s=-1)]}, Reason.INVALID_VALUE),
        (
            {"challengers": [{**challenger(), "model": {**model("2"), "features": ["amount:9"]}}]},
            Reason.INCOMPATIBLE_FEATURES,
        ),
    ],
)
def test_proposals_are_refused_with_their_reason(fields, reason):
    world = World()
    given = {"champion": model(), "guards": None, "line": "l", "challengers": [challenger()], **fields}
    world.event("proposed", "x", 1, **given)
    assert folded(world)[1] == [None, None, reason]


def test_second_open_rollout_and_an_old_name_are_conflicts(world):
    world.propose("y", challenger())
    world.event("rolled_back", "x", 2)
    world.propose("x", challenger())
    world.propose("y", challenger())
    assert reasons(world) == [Reason.ROLLOUT_CONFLICT, None, Reason.ROLLOUT_CONFLICT, None]


def test_repetition_is_ignored_and_a_key_for_something_else_is_a_conflict(world):
    world.event("shadow_started", "x", 2, idempotency_key="k")
    world.event("shadow_started", "x", 2, idempotency_key="k", created_at=START + 5, arrival=9)
    world.event("shadow_started", "x", 2, idempotency_key="k", actor="another")
    world.event("paused", "x", 3)
    assert reasons(world) == [None, None, Reason.ROLLOUT_CONFLICT, None]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(ModelMissingError("gone"), Reason.MODEL_UNAVAILABLE), (ModelError("bad"), Reason.MODEL_REFUSED)],
)
def test_proposal_whose_model_cannot_decide_is_refused_whole(world, fault, reason):
    def load(scorer: Any) -> None:
        if scorer.model.version == "3":
            raise fault

    world.event("shadow_started", "x", 2)
    log, refused = folded(world, load=load)
    assert refused == [None, None, reason, Reason.UNKNOWN_ROLLOUT]
    assert scored(log.plan()) == ("r1", [], "", 0)


def test_models_that_the_job_could_not_load_are_set_aside_as_it_reports(world):
    assert folded(world, unavailable={2})[1] == [None, None, Reason.MODEL_UNAVAILABLE]


def test_withdrawals_bring_back_the_champion_before_and_the_last_one_stays(world):
    world.event("withdrawn", "r1", 3, from_the_beginning=False)
    world.event("promoted", "x", 2, arrival=1, challenger="b")
    world.rollout("r2", arrival=2, threshold=0.1)
    world.event("withdrawn", "r2", 3, arrival=3, from_the_beginning=False)
    world.event("withdrawn", "r1", 3, arrival=4, from_the_beginning=False)
    world.event("withdrawn", "x", 3, arrival=5, from_the_beginning=False)
    log, refused = folded(world)
    assert refused[3:] == [Reason.LAST_ROLLOUT, None, None, None, None, None, Reason.LAST_ROLLOUT]
    champions = [log.plan(START + at).champion.rollout_id for at in range(6)]
    assert champions == ["r1", "x", "r2", "x", "x", "x"]


def test_withdrawn_from_the_beginning_never_decided(world):
    world.event("promoted", "x", 2, arrival=1, challenger="b")
    world.event("withdrawn", "x", 3, arrival=9, from_the_beginning=True)
    log, refused = folded(world)
    assert refused[3:] == [None, None]
    assert {log.plan(START + at).champion.rollout_id for at in (0, 1, 5, 9)} == {"r1"}


def test_an_event_with_an_earlier_timestamp_takes_effect_with_the_one_before(world):
    world.event("shadow_started", "x", 2, arrival=20)
    world.event("canary_set", "x", 3, arrival=10, challenger="b", share_bp=100)
    log, _ = folded(world)
    assert [scored(log.plan(START + at))[2:] for at in (15, 20)] == [("", 0), ("b", 100)]


def test_the_first_champion_decides_earlier_transactions():
    world = World()
    world.rollouts.clear()
    world.propose("x", challenger(), arrival=5, champion=None)
    world.event("promoted", "x", 2, arrival=6, challenger="b")
    log, refused = folded(world)
    assert refused == [None, None]
    assert scored(log.plan(START)) == ("x", [], "", 0)


def test_without_a_champion_there_is_no_plan():
    world = World()
    world.rollouts.clear()
    world.propose("x", challenger(), champion=None)
    assert folded(world)[0].plan() is None


def approved(person: str) -> dict[str, str]:
    return {"actor": person, "approved_by": person}


def test_a_promotion_by_one_person_is_refused_where_the_log_demands_two():
    world = World()
    world.propose("x", challenger(), demands={"four_eyes": True, "operator_max_share_bp": None})
    world.event("shadow_started", "x", 2)
    everything = {"challenger": "b", "share_bp": 10_000}
    world.event("canary_set", "x", 3, **everything)
    world.event("canary_set", "x", 3, **everything, actor="ada", approved_by="bob")
    world.event("canary_set", "x", 3, **everything, **approved("ada"))
    world.event("paused", "x", 4)
    world.event("resumed", "x", 5)
    world.event("resumed", "x", 5, idempotency_key="r", **approved("ada"))
    world.event("promoted", "x", 6, challenger="b")
    world.event("promoted", "x", 6, idempotency_key="p", challenger="b", **approved("ada"))
    missing = Reason.SECOND_PERSON_MISSING
    assert reasons(world) == [None, missing, missing, None, None, missing, None, missing, None]


def test_a_small_share_needs_a_second_person_for_a_weaker_policy_or_weaker_guards():
    for fields, reason in (
        ({}, None),
        ({"guards": {"alpha": 1e-9}}, Reason.SECOND_PERSON_MISSING),
        ({"guards": {"rules": [{"name": "scoring_time", "max_ratio": 1_000}]}}, Reason.SECOND_PERSON_MISSING),
        ({"guards": {"rules": [{"name": "score_drift", "max_psi": 0.25}]}}, Reason.SECOND_PERSON_MISSING),
        ({"policy": {"threshold": 1.0, "max_count_5m": 10}}, Reason.SECOND_PERSON_MISSING),
        (
            {"policy": {"threshold": 0.0, "max_count_5m": 10, "blocked": "ignore"}},
            Reason.SECOND_PERSON_MISSING,
        ),
    ):
        world = World()
        given = dict(fields)
        trying = challenger() | ({"policy": given.pop("policy")} if "policy" in given else {})
        world.propose("x", trying, demands={"four_eyes": True}, **given)
        world.event("shadow_started", "x", 2)
        world.event("canary_set", "x", 3, challenger="b", share_bp=1)
        assert reasons(world) == [None, reason], fields
