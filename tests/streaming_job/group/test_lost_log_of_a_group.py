"""What a log had lost before the state was read from it: profiles are unknown, and windows marked as cut."""

import random
from dataclasses import replace

import numpy as np
import pytest
from harness.group_batches import Group, as_records
from harness.job_world import World, expected_alerts, place
from harness.log_world import DAY, HOUR, MINUTE, START
from harness.random_world import random_world
from hypothesis import event, given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.kernels.hashing import hash_string
from feature_store.layout import COMPACTED, PROFILES
from feature_store.state.arena import MemoryArena
from feature_store.state.card_view import describe, find_card
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from streaming_job import explain
from streaming_job.contracts import Contract, validate
from streaming_job.decode import profiles
from streaming_job.decode.snapshots import with_compacted
from streaming_job.group.pending_delta import PendingDelta
from streaming_job.log.losses import Losses

pytestmark = pytest.mark.unit


def review_all(world: World) -> World:
    """Append a rollout that alerts on every transaction, and reviews those without a profile."""
    world.rollout("strict", -HOUR, threshold=0.0, missing_profile="review")
    return world


def worlds_of_changes(seed: int) -> tuple[World, World, int]:
    """Return a log of valid profile changes, the same log after compaction, and up to when that has gone.

    Compaction removes what was replaced until a random time; times in ms from START.
    """
    rng = random.Random(seed)
    worlds = review_all(World()), review_all(World())
    clock, end = 0, 60
    for _ in range(end):
        clock += rng.choice([0, MINUTE, HOUR])
        card, op = f"c{rng.randrange(5)}", rng.choice(["c", "u", "u", "d"])
        status = rng.choice(["active", "blocked"])
        is_change, amount = rng.random() < 0.4, rng.randrange(60_000) / 100
        for world in worlds:
            if is_change:
                world.profile(op, clock, card, status=status)
            else:
                world.tx(clock, amount, card_id=card)
    before = rng.randrange(clock + 1)
    worlds[1].compact(before)
    return *worlds, before


@examples(20, thorough=1000)
@given(st.integers(0, 2**32), st.integers(0, 2 * DAY))
def test_the_oracle_finds_the_same_profiles_unknown(seed, before):
    world = random_world(seed, partitions=3)
    world.compact(before)
    alerts = sorted(world.alerts(cuts=(40, 90), groups=2), key=place)
    expected = expected_alerts(world.expected())
    names = ("source", "profile", "profile_unknown", "rules", "decision", "suspicious_count")
    assert [{name: alert.get(name) for name in names} for alert in alerts] == [
        {name: alert.get(name) for name in names} for alert in expected
    ]
    again = world.alerts(cuts=(40, 90), groups=2, rebuild_each_batch=True)
    assert sorted(again, key=place) == alerts
    event(f"unknown profiles: {any(alert['profile_unknown'] for alert in alerts)}")


@examples(50, thorough=2000)
@given(st.integers(0, 2**32))
def test_compaction_only_makes_profiles_unknown(seed):
    """Each transaction sees the profile that it saw before compaction, or it says that it is unknown."""
    whole, compacted, before = worlds_of_changes(seed)
    for now, then in zip(compacted.alerts(), whole.alerts(), strict=True):
        assert now["source"] == then["source"]
        if not now["profile_unknown"]:
            assert now["profile"] == then["profile"]
            # the status of a deleted row is that of an earlier version (docs/decisions/026)
            lost = {"blocked_card"} if now["profile"] is None else set()
            assert set(now["rules"]) == set(then["rules"]) - (lost - set(now["rules"]))
            continue
        assert now["profile"] is None
        assert now["arrival_time"] < START + before
        assert "missing_profile" not in now["rules"]
        assert now["features"]["has_profile"] == 0.0
        validate(Contract.ALERT, now)
        event("unknown")


def test_a_profile_that_may_have_been_replaced_is_unknown_before_and_one_that_is_later_was_missing():
    """compacted before            |
    changes of c0        u
    changes of c1                     u
    transactions      x     x   x
    """
    world = review_all(World())
    world.profile("u", HOUR, "c0")
    world.profile("u", 5 * HOUR, "c1")
    for card in ("c0", "c1"):
        for hour in (0, 2, 3):
            world.tx(hour * HOUR, 5.0, card_id=card)
    world.compact(4 * HOUR)
    seen = [
        (alert["card_id"], alert["profile_unknown"], "missing_profile" in alert["rules"])
        for alert in world.alerts()
    ]
    assert seen == [
        ("c0", True, False), ("c0", False, False), ("c0", False, False),
        ("c1", False, True), ("c1", False, True), ("c1", False, True),
    ]  # fmt: skip


def test_rows_of_the_first_snapshot_hide_nothing():
    world = review_all(World())
    world.profile("r", HOUR, "c0", source={"snapshot": "last"})
    world.tx(2 * HOUR, 5.0, card_id="c0")
    world.compact(4 * HOUR)
    (alert,) = world.alerts()
    assert not alert["profile_unknown"]
    assert alert["profile"] is not None


def test_unknown_transactions_do_not_count_as_missing():
    world = review_all(World())
    world.tx(0, 5.0, card_id="c0")
    world.tx(0, 5.0, card_id="without a profile")
    world.profile("u", HOUR, "c0")
    world.compact(4 * HOUR)
    (outcome,) = world.run()
    assert outcome.counts["missing_profile"] == 1


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_card_with_an_unknown_profile_is_not_forgotten_early(is_compacted):
    """A card with one transaction and no profile is forgotten after a week; this one may have had one."""
    world = review_all(World())
    for arrival in (0, 20 * DAY):
        world.tx(arrival, 5.0, card_id="c0")
    world.profile("u", 21 * DAY, "c0")
    if is_compacted:
        world.compact(22 * DAY)
    for alerts in (world.alerts(), expected_alerts(world.expected())):
        assert alerts[1]["features"]["count_all"] == is_compacted


def test_alerts_whose_windows_may_lack_transactions_say_so():
    world = review_all(World())
    world.losses = Losses(windows_before=START + 2 * HOUR)
    for hour in (1, 2, 3):
        world.tx(hour * HOUR, 5.0, card_id="c0")
    for alerts in (world.alerts(), expected_alerts(world.expected())):
        assert [alert["history_cut"] for alert in alerts] == [True, False, False]


def test_a_state_that_is_rebuilt_from_deltas_has_the_same_unknown_profiles():
    """A delta replays changes; it must not depend on what the job knew of the log."""
    world = World()
    for card, arrival in (("c0", HOUR), ("c1", 5 * HOUR), ("c0", 3 * HOUR)):
        world.profile("u", arrival, card)
    history, key_groups = as_records(world.profiles), world.key_groups()
    states = GroupState(MemoryArena()), GroupState(MemoryArena())
    for records in history:
        decoded = profiles.decode(records, key_groups, 0)
        cards = states[0].card_numbers(decoded.changes, decoded.places)
        changes, cards = with_compacted(decoded.changes, cards, START + 4 * HOUR)
        states[0].change_profiles(changes, cards)
        pending = PendingDelta()
        pending.add_changes(changes, cards)
        delta = replace(pending.take(), added=states[0].take_added())
        Delta.decode(delta.encode(), "delta").replay(states[1], np.full(1, -1), 1)
    for state in states:
        kinds = [version["change"] for version in state.profiles[: int(state.counters[PROFILES])]]
        assert kinds.count(COMPACTED) == 1


def test_a_version_in_force_is_known_although_the_first_one_arrived_later():
    """Arrivals go back if the brokers' clocks differ."""
    world = review_all(World())
    world.profile("u", 2 * HOUR, "c0")
    world.profile("u", HOUR, "c0")
    world.tx(90 * MINUTE, 5.0, card_id="c0")
    world.losses = Losses(profiles_before=START + 4 * HOUR)
    for alerts in (world.alerts(), expected_alerts(world.expected())):
        assert [alert["profile_unknown"] for alert in alerts] == [False]


def test_a_card_with_an_unknown_profile_can_be_explained(capsys):
    world = World()
    world.profile("u", HOUR, "c0")
    world.profile("u", HOUR, "c0", credit_limit=None)
    world.compact(4 * HOUR)
    group = Group(0, world.rules())
    group.take([*world.profiles, *world.rollouts], [])
    card = find_card(group.store.items(), *hash_string("c0"))
    assert card is not None
    explain._print({"card_id": "c0", **describe(card)})
    shown = capsys.readouterr().out
    assert "the beginning" in shown
    assert "unknown" in shown
    assert "active" in shown
