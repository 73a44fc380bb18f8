"""Open rollouts in the job: deciding model, comparison, and no effect of challengers on the champion."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from harness.group_batches import Group, merged
from harness.job_world import World, load, model_ref
from harness.log_world import HOUR, MINUTE, SECOND, START
from harness.random_trials import NO_NUMBER, RAISES, load_any
from harness.rollout_records import challenger, event, proposed

from feature_store.kernels.hashing import hash_string
from feature_store.release import RELEASE
from models.policy import Policy, decide
from models.registry import ModelRef
from models.rollouts.events import Challenger, Type
from models.rollouts.membership import bucket
from models.rules.rule import Known
from models.scoring import Scorer
from streaming_job.contracts import Contract, validate
from streaming_job.group.rules import Rules
from streaming_job.progress.outcome import Outcome

pytestmark = pytest.mark.unit

ALWAYS, NEVER = Policy(0.0, 99), Policy(1.0, 99)
Load = Callable[[ModelRef], Scorer]


def world(*challengers: Challenger, share_bp: int = 5_000, kind: type[World] = World) -> World:
    """A minute of traffic; a rollout in shadow from 10 s, canary from 20 s, rolled back at 40 s."""
    result = kind(rollout=False, partitions=3)
    result.rollout("r1", -HOUR, threshold=0.0, max_count_5m=99)
    result.event(proposed("r2", *challengers), 9 * SECOND)
    result.event(event(Type.SHADOW_STARTED, "r2", 2), 10 * SECOND)
    result.event(event(Type.CANARY_SET, "r2", 3, share_bp=share_bp), 20 * SECOND)
    result.event(event(Type.ROLLED_BACK, "r2", 4), 40 * SECOND)
    for second in range(60):
        result.tx(second * SECOND, float(second * 17 % 600), card_id=f"c{second % 20}")
    return result


def by_arrival(records: list[Any]) -> list[dict[str, Any]]:
    return sorted((json.loads(record.value) for record in records), key=lambda alert: alert["arrival_time"])


def one_pass(made: World, load_model: Load = load_any, cuts: tuple[int, ...] = ()) -> Outcome:
    return merged(made.run(cuts, groups=3, load_model=load_model, rebuild_each_batch=bool(cuts)))


def member(card: str, share_bp: int) -> bool:
    lo = np.array([hash_string(card)[0]], dtype=np.uint64)
    return int(bucket(lo, "card-fraud/card-fraud")[0]) < share_bp


@pytest.mark.parametrize("cuts", [(), (5, 15, 25, 45)], ids=str)
def test_a_canary_decides_for_its_cards(cuts: tuple[int, ...]) -> None:
    result = world(challenger(model_ref("2"), policy=ALWAYS))
    outcome = one_pass(result, cuts=cuts)
    alerts = by_arrival(outcome.records["fraud_alerts"])
    assert len(alerts) == 60
    for second, alert in enumerate(alerts):
        validate(Contract.ALERT, alert)
        is_member = member(alert["card_id"], 5_000)
        by_canary = is_member and 20 <= second < 40
        assert alert["role"] == ("canary" if by_canary else "champion")
        assert (alert["rollout_id"], alert["rollout_seq"]) == (("r2", 3) if by_canary else ("r1", 2))
        assert alert["model"]["version"] == ("2" if by_canary else "1")
        assert alert["challenger_failure"] is None
        if 20 <= second < 40:
            assert alert["membership"]["is_member"] == is_member
            assert alert["membership"]["share_bp"] == 5_000
        else:
            assert alert["membership"] is None
    counts = outcome.trials.by_rollout["r2"].challengers["b"]
    decided = sum(member(f"c{second % 20}", 5_000) for second in range(20, 40))
    assert 0 < decided < 20
    assert counts.numbers["decided"] == decided
    assert counts.numbers["transactions"] == counts.numbers["both"] == 30
    assert outcome.trials.by_rollout["r2"].seq == 3


@pytest.mark.parametrize("cuts", [(), (5, 15, 25, 45)], ids=str)
def test_differing_verdicts_are_shadow_alerts_and_counted_in_units(cuts: tuple[int, ...]) -> None:
    """The champion and `e` alert on everything, `b` on nothing, `d` by score; only the champion decides."""
    result = world(
        challenger(model_ref("2"), policy=NEVER, role="shadow"),
        challenger(model_ref("2"), "d", role="shadow", policy=Policy(0.5, 99)),
        challenger(model_ref("1"), "e", policy=ALWAYS),
        share_bp=1,
    )
    outcome = one_pass(result, cuts=cuts)
    assert len(outcome.records["fraud_alerts"]) == 60
    shadows = by_arrival(outcome.records["shadow_alerts"])
    named = [alert["challenger"] for alert in shadows]
    assert named.count("b") == 30
    assert named.count("e") == 0
    policy = Policy(0.5, 99)
    for shadow in shadows:
        validate(Contract.SHADOW_ALERT, shadow)
        assert shadow["release"] == RELEASE
        assert not shadow["alerts"]
        assert shadow["champion"]["alerts"]
        assert shadow["champion"]["rules"] == ["score"]
        quiet = {"count_5m": 1, "arrivals_5m": 1}
        if shadow["challenger"] == "d":
            assert decide(policy, Known(shadow["score"], quiet, None, False), 0) is None
    trial = outcome.trials.by_rollout["r2"].challengers
    assert trial["d"].numbers["only_champion"] == named.count("d") < 30
    assert +trial["b"].cards == {"only_champion": 20}
    hours = {(second % 20, (START + second * SECOND) // HOUR) for second in range(10, 40)}
    assert +trial["b"].card_hours == {"only_champion": len(hours)}
    assert +trial["e"].card_hours == {"both": len(hours)}


def lost(ref: ModelRef) -> Scorer:
    """Loader of a model whose files are lost."""
    raise OSError("the disk is gone")


class LostWorld(World):
    """A world whose challengers' models are valid at the proposal, and cannot be loaded later."""

    def rules(self, groups: int = 1, load_model: Load = load) -> Rules:
        return replace(super().rules(groups, load_model), load_challenger=lost)


class OutOfMemory:
    """A model that runs out of memory."""

    def score(self, x: np.ndarray) -> np.ndarray:
        raise MemoryError("no room")

    explain = score


def no_room(ref: ModelRef) -> Scorer:
    known = load(ref)
    return replace(known, classifier=OutOfMemory()) if ref.version == "2" else known


@pytest.mark.parametrize(
    ("ref", "load_model", "why"),
    [
        (NO_NUMBER, load_any, "no_probability"),
        (RAISES, load_any, "raised"),
        (model_ref("2"), no_room, "unavailable"),
        (model_ref("2"), load, "unavailable"),
    ],
    ids=["NaN", "raises", "out of memory", "gone"],
)
@pytest.mark.parametrize("cuts", [(), (15, 25)], ids=str)
def test_a_failing_challenger_changes_no_output_of_the_champion(
    ref: ModelRef, load_model: Load, why: str, cuts: tuple[int, ...]
) -> None:
    result = world(
        challenger(ref, policy=ALWAYS), share_bp=10_000, kind=LostWorld if load_model is load else World
    )
    alone = World(rollout=False, partitions=3)
    alone.rollout("r1", -HOUR, threshold=0.0, max_count_5m=99)
    alone.transactions = result.transactions
    outcome = one_pass(result, load_model, cuts)
    known, expected = (
        by_arrival(outcome.records["fraud_alerts"]),
        by_arrival(one_pass(alone).records["fraud_alerts"]),
    )
    failed = [alert for alert in known if alert["challenger_failure"]]
    assert {alert["challenger_failure"] for alert in failed} == {why}
    for alert, other in zip(known, expected, strict=True):
        validate(Contract.ALERT, alert)
        if alert["role"] == "champion":
            new = ("membership", "challenger_failure")
            assert {**alert, **dict.fromkeys(new)} == {**other, **dict.fromkeys(new)}
            assert alert["model_failure"] is None
    counts = outcome.trials.by_rollout["r2"].challengers["b"].numbers
    assert counts["failures"] >= len(failed) > 0
    assert counts["decided"] == 20 - len(failed)
    assert outcome.counts["scoring_failures"] == 0


def test_cooldown_and_escalation_follow_the_cards_own_alerts() -> None:
    """The promoted policy has a cooldown of 60 s, and declines a card's alerts from the third in a day on.

    A declined alert is never suppressed.

    arrival    0 s   30 s        60 s       61 s
    alert      sent  suppressed  escalated  escalated
    """
    result = World(rollout=False)
    result.rollout("r1", -HOUR, threshold=1.0, max_count_5m=99)
    policy = Policy(0.0, 99, escalate_after=3, cooldown_s=60)
    result.event(proposed("r2", challenger(model_ref("2"), policy=policy)), -MINUTE)
    result.event(event(Type.PROMOTED, "r2", 2), -MINUTE)
    for second in (0, 30, 60, 61):
        result.tx(second * SECOND)
    for cuts in ((), (1, 2, 3)):
        outcome = merged(result.run(cuts, rebuild_each_batch=bool(cuts)))
        alerts, (held,) = (
            by_arrival(outcome.records["fraud_alerts"]),
            by_arrival(outcome.records["suppressed_alerts"]),
        )
        validate(Contract.ALERT, held)
        assert held["suppressed_by"] == {"arrival_time": START}
        assert held["release"] == RELEASE
        assert [alert["decision"] for alert in alerts] == ["review", "decline", "decline"]
        assert [alert["rules"][-1] for alert in alerts] == ["score", "escalated", "escalated"]
        assert [alert["suspicious_count"]["day"] for alert in alerts] == [1, 3, 4]
        assert {alert["policy"] for alert in alerts} == {policy.digest()}


def test_progress_has_the_first_transaction_to_which_each_event_applied() -> None:
    result = world(challenger(model_ref("2")))
    group = Group(0, result.rules(1))
    group.take([*result.rollouts], result.transactions)
    applied = {step["seq"]: step for step in orjson.loads(orjson.dumps(group.core.outcome.applied))[1:]}
    by_partition = {
        partition: [record for record in result.transactions if record.partition == partition]
        for partition in range(3)
    }
    for seq, since in ((2, 10), (3, 20), (4, 40)):
        assert applied[seq]["held_from"] == {
            str(partition): next(r.offset for r in records if r.timestamp >= START + since * SECOND)
            for partition, records in by_partition.items()
        }


def test_without_an_open_rollout_no_trial_is_stored_or_reported() -> None:
    result = World()
    for second in range(50):
        result.tx(second * SECOND, 500.0)
    group = Group(0, result.rules())
    group.take(result.rollouts, result.transactions)
    assert not group.core.outcome.trials
    assert group.store["units"] == b""
