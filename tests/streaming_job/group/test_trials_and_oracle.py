"""The job and the oracle, which has rollout code of its own, agree on rollouts with challengers."""

import json
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from harness.group_batches import merged
from harness.job_world import LIMITS, PARTITIONER, World, model_ref
from harness.log_world import HOUR, SECOND
from harness.random_trials import NO_NUMBER, RAISES, load_any
from harness.rollout_records import challenger, event, proposed

from loadtests.audit.agreement import different_fields
from loadtests.audit.trial_audit import trial_counts
from loadtests.oracle import AcceptanceRules, Oracle, ProfileLog, RolloutLog
from loadtests.oracle.membership import bucket, salt_of
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import DIGESTED, TABLE

pytestmark = pytest.mark.unit

SOUND = model_ref("2")
CARDS = [f"c{number}" for number in range(23)]
BORDER = sorted(bucket(card, salt_of("card-fraud")) for card in CARDS)[11]
"""A share that ends at a card's bucket: this card is no member."""


def story(canary: ModelRef) -> World:
    """A rollout through all its phases, while 23 cards pay 1,200 times.

    Some payments repeat id and amount of their card's previous payment, with another event time.
    """
    world = World(rollout=False, partitions=3)
    world.rollout("r1", -HOUR, threshold=0.3, max_count_5m=6)
    strict = Policy(0.2, 5, cooldown_s=40, escalate_after=20, max_count_1m=3)
    shadow = challenger(SOUND, "s", "shadow", Policy(0.9, 4))
    world.event(proposed("r2", challenger(canary, policy=strict), shadow), 9 * SECOND)
    world.event(event(Type.SHADOW_STARTED, "r2", 2), 10 * SECOND)
    world.event(event(Type.SHADOW_STARTED, "r2", 2, idempotency_key="another"), 11 * SECOND)  # refused
    world.event(event(Type.CANARY_SET, "r2", 3, share_bp=BORDER), 60 * SECOND)
    world.event(event(Type.PAUSED, "r2", 4), 300 * SECOND)
    world.event(event(Type.RESUMED, "r2", 5), 320 * SECOND)
    world.event(event(Type.PROMOTED, "r2", 6), 400 * SECOND)
    world.event(event(Type.WITHDRAWN, "r2", 7, from_the_beginning=False), 500 * SECOND)
    for number in range(1200):
        # the card's previous payment is 23 before
        content = number - 23 if number % 50 == 29 else number
        amount, card = float(content * 37 % 700), CARDS[content * 7 % 23]
        world.tx(number // 2 * SECOND, amount, card_id=card, transaction_id=f"t{content}")
    return world


def place(alert: dict[str, Any]) -> tuple[int, int, str]:
    return alert["source"]["partition"], alert["source"]["offset"], alert.get("challenger", "")


def require_same(field: str, expected: Iterable[dict[str, Any]], written: Iterable[Any]) -> int:
    """Compare the records of an output; return how many there are."""
    ours = sorted((json.loads(alert.value) for alert in written), key=place)
    theirs = sorted(expected, key=place)
    assert [place(alert) for alert in ours] == [place(alert) for alert in theirs]
    for mine, wanted in zip(ours, theirs, strict=True):
        assert different_fields(wanted, mine) == []
    for record in ours[:20]:
        validate(Contract(TABLE[field].contract), record)
    return len(ours)


@pytest.mark.parametrize("canary", [SOUND, RAISES, NO_NUMBER], ids=["sound", "raises", "no number"])
def test_job_and_oracle_agree_on_rollouts(canary: ModelRef) -> None:
    world = story(canary)
    job = merged(world.run((100, 333, 800), groups=3, load_model=load_any))
    rollouts = RolloutLog(lambda scorer: load_any(scorer.model))
    refused = rollouts.read(world.rollouts)
    rules = AcceptanceRules(LIMITS.lateness_ms, LIMITS.skew_ms, world.partitions, PARTITIONER.value)
    oracle = Oracle(ProfileLog(), rollouts, lambda scorer: load_any(scorer.model), rules)
    outcomes = list(oracle.judge(world.transactions))
    written = [record for outcome in outcomes for record in outcome.records]
    counts = {
        field: require_same(
            field, (record for topic, record in written if topic == field), job.records[field]
        )
        for field in DIGESTED
    }
    assert counts["fraud_alerts"] > 100
    # only the canary's policy has a cooldown; a canary without scores decides nothing until it is promoted,
    # and its alerts then decline (escalated), which no cooldown suppresses
    idle = {"suppressed_alerts"} if canary == NO_NUMBER else set()
    assert {field for field, count in counts.items() if count <= 10} <= idle
    assert trial_counts(json.loads(orjson.dumps(job.trials.to_json()))) == oracle.trials.counts()
    letters = {(letter.offset, letter.reason.value) for letter in job.dead_letters}
    assert {(result.offset, result.reason.value) for result in refused if result.reason} == letters
    assert letters
