"""The loop of an epoch: whatever is killed, restored or lost, the output is that of one uncut pass."""

from functools import cache
from typing import Any

import pytest
from harness.job_world import Group, random_world
from harness.memory_job import MemoryJob, Output, mortal
from harness.memory_log import Fate, KilledError, as_written
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.arena import MemoryArena
from feature_store.card_view import CardState, describe
from feature_store.group_state import GroupState
from feature_store.journal import load_meta, rebuild
from loadtests.oracle import Record
from streaming_job.group.core import Rules

pytestmark = pytest.mark.unit

WORLDS, TRANSACTIONS = 30, 40
SHAPES = [(1, 1, 0), (3, 1, 0), (2, 2, 1), (3, 2, 0), (4, 3, 0)]
"""Partitions, key groups, the group that is looked at."""
COUNTS = (
    "transactions", "duplicates", "late", "profile_changes", "rollouts", "missing_profile",
    "late_table_changes", "scoring_failures",
)  # fmt: skip


@cache
def case(seed: int, partitions: int, groups: int) -> tuple[Rules, list[Record]]:
    """A job, and its log."""
    world = random_world(seed, TRANSACTIONS, partitions)
    return world.rules(groups), as_written(world)


@cache
def uncut(seed: int, partitions: int, groups: int, group: int) -> tuple[Output, dict[Any, Any]]:
    """What a group says of the whole log in one pass, and what it knows then."""
    rules, log = case(seed, partitions, groups)
    transactions = [record for record in log if record.topic == rules.topics.transactions]
    pass_ = Group(group, rules)
    pass_.take([record for record in log if record.topic in rules.topics.tables], transactions)
    output = Output()
    output.add(pass_.core.take_outcome())
    return output, knowledge(rebuilt(pass_.store))


def rebuilt(pieces: Any) -> GroupState:
    state = GroupState(MemoryArena())
    rebuild(pieces, load_meta(pieces), state)
    return state


def knowledge(state: GroupState) -> dict[Any, Any]:
    """Everything that a state knows of its cards, but for profile versions that nobody can see any more."""
    known = {}
    for number in range(state.numbers_given):
        card = state.arena.arrays["cards"][number]
        told: dict[str, Any] = describe(CardState(state, number))
        seen_at = told["last_arrival_time"]
        versions = told["profiles"]
        in_force = [
            n for n, version in enumerate(versions) if (version["known_from"] or 0) <= (seen_at or -1)
        ]
        told["profiles"] = versions[: in_force[0] + 1] if in_force else versions
        known[int(card["lo"]), int(card["hi"])] = told
    return known


BEFORE = st.one_of(st.none(), st.just("another process"), st.just("another machine"), st.integers(0, 8))
"""What happens before an epoch; a number: that checkpoint is restored."""
EPOCHS = st.lists(st.tuples(BEFORE, st.integers(0, 12), st.none() | st.integers(0, 90)), max_size=8)
"""What happens before, how long it lasts, which call kills its process."""


@examples(2_500, thorough=40_000)
@given(st.integers(0, WORLDS - 1), st.sampled_from(SHAPES), EPOCHS, st.integers(0, 2**32))
def test_output_and_state_are_those_of_an_uncut_pass(seed, shape, epochs, chance):
    partitions, groups, group = shape
    rules, log = case(seed, partitions, groups)
    fate = Fate(chance)
    job = MemoryJob(group, rules, log, fate)
    with mortal(fate):
        for before, looks, last_call in epochs:
            if before == "another process":
                job.lose_process()
            elif before == "another machine":
                job.lose_copy()
            elif before is not None:
                job.restore(before)
            fate.left = last_call
            try:
                job.epoch(looks)
            except KilledError:
                continue
        fate.left = None
        calm = 0
        while not job.is_done:
            job.epoch(looks=40)
            calm += 1
            assert calm < 60
        found = knowledge(rebuilt(job.pieces))
    expected, known = uncut(seed, *shape)
    assert dict(job.output.alerts) == dict(expected.alerts)
    assert dict(job.output.dead_letters) == dict(expected.dead_letters)
    assert {name: job.output.counts[name] for name in COUNTS} == {
        name: expected.counts[name] for name in COUNTS
    }
    assert found == known
