"""Successors continue the output of their predecessors: the union equals that of one undisturbed job."""

from functools import cache
from typing import Any

import pytest
from harness.group_batches import Group
from harness.memory_job import Output, mortal
from harness.memory_log import Fate, MemoryLog, as_written
from harness.memory_takeover import Generation, MemoryWatch, union
from harness.random_trials import load_any
from harness.random_world import random_world
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from loadtests.oracle import Record
from streaming_job.group.rules import Rules

pytestmark = pytest.mark.unit

WORLDS, TRANSACTIONS, PARTITIONS = 20, 60, 4
COUNTS = "transactions", "duplicates", "late", "profile_changes", "rollouts", "scoring_failures"


@cache
def case(seed: int) -> tuple[dict[int, Rules], list[Record]]:
    """The rules of jobs by their number of key groups, and a log."""
    world = random_world(seed, TRANSACTIONS, PARTITIONS, trials=seed % 3 > 0)
    return {groups: world.rules(groups, load_any) for groups in (1, 2, 3, 4)}, as_written(world)


@cache
def undisturbed(seed: int) -> Any:
    """The union of one pass of a single key group over the whole log."""
    rules, log = case(seed)
    group = Group(0, rules[1])
    topics = rules[1].topics
    group.take(
        [r for r in log if r.topic in topics.tables], [r for r in log if r.topic == topics.transactions]
    )
    output = Output()
    output.add(group.core.take_outcome())
    return union([output])


EPOCH = st.tuples(st.integers(0, 3), st.integers(0, 8), st.none() | st.integers(0, 60))
"""Key group, turns before the cut, calls before the one that kills the process."""
BEFORE = st.lists(EPOCH, max_size=6)
"""Epochs of a generation while no successor runs."""
BESIDE = st.lists(st.tuples(st.booleans(), EPOCH), max_size=12)
"""Epochs while a successor warms up: whether it is the successor's, and the epoch."""
LIVES = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4, "back"]), st.booleans(), BEFORE, BESIDE), min_size=1, max_size=3
)
"""For each takeover: the number of the successor's key groups, or the job before takes its output back; and
whether a new successor begins with the predecessor's state, or with the log."""


@examples(60, thorough=20_000)
@given(st.integers(0, WORLDS - 1), st.integers(1, 4), LIVES, st.integers(0, 2**32))
def test_the_union_of_all_generations_equals_the_output_of_one_job(seed, groups, lives, chance):
    rules, records = case(seed)
    fate = Fate(chance)
    log = MemoryLog(records, fate)
    with mortal(fate):
        generations = [Generation("q0", rules[groups], log, fate)]
        outputs = []
        for number, (next_groups, inherits, before, beside) in enumerate(lives, 1):
            current = generations[-1]
            for epoch in before:
                current.epoch(*epoch)
            current.begin()
            if next_groups == "back" and len(generations) > 1:
                successor = generations[-2]
            else:
                of_next = 2 if next_groups == "back" else next_groups
                successor = Generation(f"q{number}", rules[of_next], log, fate)
                if inherits:
                    successor.inherit(current)
            for is_successor, epoch in beside:
                if is_successor:
                    successor.epoch(*epoch, MemoryWatch(current.outputs))
                else:
                    current.epoch(*epoch)
            outputs += current.outputs
            successor.take_over(current)
            generations.append(successor)
        generations[-1].finish()
        outputs += generations[-1].outputs
    alerts, letters, counts = union(outputs)
    expected_alerts, expected_letters, expected_counts = undisturbed(seed)
    assert alerts == expected_alerts
    assert letters == expected_letters
    assert {name: counts[name] for name in COUNTS} == {name: expected_counts[name] for name in COUNTS}
