"""Successors continue the output of their predecessors: the union equals that of one undisturbed job."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from harness.group_batches import Group
from harness.job_world import PARTITIONER
from harness.log_world import TOPICS
from harness.memory_job import Output, mortal
from harness.memory_log import Fate, MemoryLog, as_written
from harness.memory_takeover import Generation, MemoryWatch, Union, union
from harness.random_trials import load_any
from harness.random_world import random_world
from hypothesis import example, given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.state.journal import load_meta
from loadtests.oracle import Record
from streaming_job.group.rules import Rules
from streaming_job.group.stored_positions import positions_of
from streaming_job.log.partitioner import Layout, Partitioner

pytestmark = pytest.mark.unit

WORLDS, TRANSACTIONS, PARTITIONS = 20, 60, 4
COUNTS = "transactions", "duplicates", "late", "profile_changes", "rollouts", "scoring_failures"
ORIGINAL = Layout(TOPICS.transactions, PARTITIONER, PARTITIONS)


@cache
def case(seed: int) -> tuple[Rules, list[Record]]:
    """The rules of a job of one key group, and a log."""
    world = random_world(seed, TRANSACTIONS, PARTITIONS, trials=seed % 3 > 0)
    return world.rules(1, load_any), as_written(world)


def rules_of(seed: int, layout: Layout, groups: int, retired: tuple[str, ...]) -> Rules:
    """The rules of a job that reads its transactions by a layout."""
    topics = TOPICS.model_copy(update={"transactions": layout.topic})
    return replace(case(seed)[0], topics=topics, key_groups=layout.key_groups(groups), retired=retired)


@cache
def undisturbed(seed: int) -> Union:
    """The union of one pass of a single key group over the whole log."""
    rules, log = case(seed)
    group, topics = Group(0, rules), rules.topics
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
MOVE = st.tuples(st.booleans(), st.sampled_from(Partitioner), st.integers(2, 7), st.lists(EPOCH, max_size=4))
"""Another layout: whether of another topic, partitioner, number of partitions; and epochs of the drain."""
LIVES = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4, "back"]), st.booleans(), BEFORE, BESIDE, st.none() | MOVE),
    min_size=1,
    max_size=3,
)
"""For each takeover: the number of the successor's key groups, or the job before takes its output back;
whether a new successor begins with the predecessor's state, or with the log; and where the cards move."""


SLOW = [(1, 2, None)] * 2 + [(1, 8, 20)] * 6 + [(0, 1, None)] * 2
"""Group 1 begins, and is killed while the log grows; then group 0 reads all rollouts, but no transactions."""
INHERITED_TWICE = [(1, True, SLOW, [], None), (2, True, [], [], None)]
"""These two groups become one, whose rollout history ends where that of group 1 did; then two again."""
CRC32 = Partitioner.CRC32
MOVED_TWICE = [(3, True, SLOW, [], (True, CRC32, 7, [])), (2, True, SLOW, [], (False, CRC32, 9, []))]
"""To another topic and partitioner; there partitions are added."""
MOVED_ON = [
    (2, True, SLOW, [], (True, CRC32, 3, [])),
    (1, True, SLOW, [(True, epoch) for epoch in SLOW], (True, CRC32, 5, [])),
]
"""To another topic, and from there to a third one, while producers of both write on."""


def moved(layout: Layout, move: tuple[bool, Partitioner, int, Any]) -> Layout:
    """The layout after a move; partitions of a topic only become more."""
    is_other, partitioner, partitions, _ = move
    if is_other:
        return Layout(f"{layout.topic}'", partitioner, partitions)
    return Layout(layout.topic, partitioner, max(layout.partitions, partitions))


@examples(40, thorough=500)
@example(5, 2, INHERITED_TWICE, 1)
@example(5, 2, MOVED_TWICE, 1)
@example(5, 2, MOVED_ON, 1)
@given(st.integers(0, WORLDS - 1), st.integers(1, 4), LIVES, st.integers(0, 2**32))
def test_the_union_of_all_generations_equals_the_output_of_one_job(seed, groups, lives, chance):
    fate, layout, retired = Fate(chance), ORIGINAL, ()
    log = MemoryLog(case(seed)[1], fate)
    with mortal(fate):
        generations = [Generation("q0", rules_of(seed, layout, groups, retired), log, fate)]
        outputs = []
        for number, (next_groups, inherits, before, beside, move) in enumerate(lives, 1):
            current = generations[-1]
            for epoch in before:
                current.epoch(*epoch)
                log.write_late(retired, 1)
            current.begin()
            after = layout if move is None else moved(layout, move)
            if after != layout:
                log.stop_producers()
                if after.topic != layout.topic:  # they may begin to write there
                    log.move(ORIGINAL, after)
                current.drain(log, move[-1])
                log.move(ORIGINAL, after)
                retired = retired if after.topic == layout.topic else (*retired, layout.topic)
            is_way_back = after == layout and len(generations) > 1 and generations[-2].rules.layout == layout
            if next_groups == "back" and is_way_back:
                successor = generations[-2]
            else:
                of_next = min(2 if next_groups == "back" else next_groups, after.partitions)
                successor = Generation(f"q{number}", rules_of(seed, after, of_next, retired), log, fate)
                if inherits or after != ORIGINAL:
                    successor.inherit(current)
            layout = after
            for is_successor, epoch in beside:
                if is_successor:
                    successor.epoch(*epoch, MemoryWatch(current.outputs, successor.rules))
                else:
                    current.epoch(*epoch)
                log.write_late(retired, 1)
            outputs += current.outputs
            successor.take_over(current)
            generations.append(successor)
        generations[-1].finish()
        outputs += generations[-1].outputs
    found, expected = union(outputs, log.origins), undisturbed(seed)
    assert found.alerts == expected.alerts
    assert found.letters == expected.letters
    assert found.late == sorted(log.retired)
    assert {name: found.counts[name] for name in COUNTS} == {name: expected.counts[name] for name in COUNTS}


def test_records_in_partitions_that_were_added_to_a_topic_before_it_was_left_are_too_late_as_well():
    fate, elsewhere = Fate(1), Layout("elsewhere", CRC32, 5)
    log = MemoryLog(case(5)[1], fate)
    with mortal(fate):
        old = Generation("q0", rules_of(5, ORIGINAL, 2, ()), log, fate)
        old.begin()
        log.stop_producers()
        log.create([(ORIGINAL.topic, PARTITIONS)])
        old.drain(log, [])
        log.move(ORIGINAL, elsewhere)
        new = Generation("q1", rules_of(5, elsewhere, 2, (ORIGINAL.topic,)), log, fate)
        new.inherit(old)
        for group in range(2):
            new.epoch(group, 3, None, MemoryWatch(old.outputs, new.rules))
        new.take_over(old)
        while not any(partition == PARTITIONS for _, partition, _ in log.retired):
            log.write_late((ORIGINAL.topic,), 5)
        new.finish()
    found = union(old.outputs + new.outputs, log.origins)
    assert found.late == sorted(log.retired)
    assert found.alerts == undisturbed(5).alerts


def test_a_state_that_has_not_followed_a_retired_topic_continues_it_where_the_output_ends():
    fate, elsewhere = Fate(1), Layout("elsewhere", CRC32, 5)
    log, left = MemoryLog(case(5)[1], fate), (ORIGINAL.topic,)
    with mortal(fate):
        old = Generation("q0", rules_of(5, ORIGINAL, 2, ()), log, fate)
        old.begin()
        log.stop_producers()
        old.drain(log, [])
        log.move(ORIGINAL, elsewhere)
        live = Generation("q1", rules_of(5, elsewhere, 2, left), log, fate)
        replay = Generation("replay", rules_of(5, elsewhere, 2, ()), log, fate)
        for each in (live, replay):
            each.inherit(old)
        live.take_over(old)
        replay.begin()
        for number in range(10):
            live.epoch(number, 10, None)
            log.write_late(left, 2)
        new = Generation("q2", rules_of(5, elsewhere, 2, left), log, fate)
        new.inherit(replay)
        for group in range(2):
            new.epoch(group, 3, None, MemoryWatch(live.outputs, new.rules))
        new.take_over(live)
        log.write_late(left, 5)
        new.finish()
    found = union(old.outputs + live.outputs + new.outputs, log.origins)
    assert found.late == sorted(log.retired)
    assert found.alerts == undisturbed(5).alerts


@pytest.mark.parametrize("inherits", [False, True])
def test_a_successor_is_level_when_it_has_decided_what_its_predecessor_has(*, inherits: bool):
    fate = Fate(1)
    log = MemoryLog(case(5)[1], fate)
    old, new = (Generation(query, rules_of(5, ORIGINAL, 1, ()), log, fate) for query in ("q0", "q1"))
    with mortal(fate):
        old.begin()
        if inherits:
            new.inherit(old)
        old.finish()
        watch = MemoryWatch(old.outputs, new.rules)
        (job,) = new.jobs
        assert [job.warm_epoch(looks, watch) for looks in (0, 1, 200, 0)] == [False, False, True, True]
    decided = positions_of(load_meta(old.jobs[0].pieces))
    assert {tp: positions_of(load_meta(job.pieces))[tp] for tp in decided} == decided
