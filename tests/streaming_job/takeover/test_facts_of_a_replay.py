"""A takeover turns merchant facts on, or changes the label delay: with the state and the facts of a replay.

The predecessor's alerts are those of a job with its own settings, the successor's those of a job that has
always had the new ones; labels become facts once, and dead letters once.
"""

from collections.abc import Callable
from functools import cache
from unittest.mock import Mock

import pytest
from harness.job_world import World, load
from harness.labelled_world import MemoryGroups, labelled_world
from harness.log_world import DAY, TOPICS
from harness.memory_job import FACTS, MemoryConnections, mortal, settings_of
from harness.memory_log import Fate, MemoryLog, as_written
from harness.memory_takeover import Generation
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.state.journal import load_meta, seal
from loadtests.oracle import Record
from streaming_job.facts.group_facts import AUTHOR
from streaming_job.facts.table import MerchantRules
from streaming_job.group import processor
from streaming_job.group.opening import Opening
from streaming_job.group.rules import Rules
from streaming_job.log.errors import LogError
from streaming_job.progress import last_record
from streaming_job.progress.last_record import FACTS_COMMIT
from streaming_job.runtime.checkpoint_errors import CheckpointError

pytestmark = pytest.mark.unit

RECORDS = 60
CASES = [(0, 3, 2), (1, 4, 3), (3, 3, 2), (5, 3, 2), (2, 1, 1)]
"""Seed, partitions, key groups."""
LIVE, REPLAY = "card-fraud", "card-fraud-replay-facts"
EPOCH = st.tuples(st.integers(0, 3), st.integers(0, 8), st.none() | st.integers(0, 60))
"""Key group, turns before the cut, calls before the one that kills the process."""


@cache
def case(seed: int, partitions: int) -> tuple[World, tuple[Record, ...]]:
    world = labelled_world(seed, RECORDS, partitions)
    return world, tuple(as_written(world))


def rules_of(of: tuple[int, int, int], delay_ms: int | None, job_id: str) -> Rules:
    """The rules of a job with a label delay; None: without merchant facts."""
    seed, partitions, groups = of
    merchants = None if delay_ms is None else MerchantRules(job_id, delay_ms)
    return case(seed, partitions)[0].rules(groups, load, merchants)


@cache
def undisturbed(of: tuple[int, int, int], delay_ms: int | None) -> MemoryGroups:
    fate = Fate(of[0])
    groups = MemoryGroups(rules_of(of, delay_ms, REPLAY), list(case(*of[:2])[1]), fate)
    with mortal(fate):
        groups.finish()
    return groups


def is_ahead(replay: Generation, live: Generation) -> bool:
    """Whether the replay has read more than the live job has decided; see `deploy.replay.switching`."""
    ends = [last_record.positions(output.progress) for output in live.outputs]
    return any(
        offset > end[tp]
        for job in replay.jobs
        for tp, offset in job.positions.items()
        for end in ends
        if tp in end and tp != FACTS
    )


def stop(replay: Generation, successor: Callable[[], Generation]) -> None:
    """Stop the replay; after a kill it goes on until its state can be inherited."""
    for _ in range(400):
        for job in replay.jobs:
            job.stop()
        if not is_refused(replay, successor()):
            break
        for job in replay.jobs:
            job.epoch(looks=4)
    for job in replay.jobs:
        assert job.positions == last_record.positions(job.output.progress)


def is_refused(replay: Generation, successor: Generation) -> bool:
    """Whether the state is behind the facts that are written; see `takeover.inherited_facts`."""
    try:
        successor.inherit(replay)
    except CheckpointError:
        return True
    ends = [load_meta(job.pieces).extra[FACTS_COMMIT] for job in successor.jobs]
    return ends != [job.output.commit_id for job in replay.jobs]


def as_groups(generation: Generation, log: MemoryLog) -> MemoryGroups:
    """The output of a generation, as of groups that run alone."""
    groups = MemoryGroups.__new__(MemoryGroups)
    groups.log, groups.jobs = log, generation.jobs
    return groups


def test_a_state_of_a_release_that_named_no_author_of_its_facts_is_refused():
    of, fate = CASES[-1], Fate(1)
    log = MemoryLog(case(*of[:2])[1], fate, own=[FACTS])
    with mortal(fate):
        replay = Generation("replay", rules_of(of, 0, REPLAY), log, fate)
        replay.begin()
        stop(replay, lambda: Generation("q1", rules_of(of, 0, LIVE), log, fate))
        for job in replay.jobs:
            meta = load_meta(job.pieces)
            del meta.extra[AUTHOR]
            seal(job.pieces, meta)
        with pytest.raises(
            CheckpointError, match="saved by an older release; have this release continue the"
        ):
            Generation("q1", rules_of(of, 0, LIVE), log, fate).inherit(replay)


def test_a_log_that_lacks_what_the_state_needs_next_is_found_before_the_predecessor_is_fenced(monkeypatch):
    of, fate = CASES[-1], Fate(1)
    log = MemoryLog(case(*of[:2])[1], fate, own=[FACTS])
    rules = rules_of(of, 0, LIVE)
    with mortal(fate):
        replay = Generation("replay", rules_of(of, 0, REPLAY), log, fate)
        replay.begin()
        stop(replay, lambda: Generation("q1", rules, log, fate))
        successor = Generation("q1", rules, log, fate)
        successor.inherit(replay)
    (job,) = successor.jobs
    opening = Opening(settings_of(rules), rules, 0, "q1", "instance", takes_over=True)
    connections = MemoryConnections(log, job.output, fate, opening)
    monkeypatch.setattr(processor, "KafkaConnections", lambda _: connections)
    monkeypatch.setattr(processor, "require_stopped", lambda *_: None)
    group = processor.GroupProcessor.__new__(processor.GroupProcessor)
    group._settings, group._pieces = opening.settings, job.pieces
    assert group._follow(opening, Mock())["positions"] != "{}"
    monkeypatch.setattr(connections, "first", lambda: {tp: end + 1 for tp, end in job.positions.items()})
    with pytest.raises(LogError, match="retention has deleted the records"):
        group._follow(opening, Mock())


def labels_of(groups: MemoryGroups) -> int:
    """The number of labels that became facts, as counted."""
    return sum(job.output.counts["labels"] for job in groups.jobs)


@examples(25, thorough=500)
@given(
    st.sampled_from(CASES),
    st.sampled_from([None, DAY, 7 * DAY]),
    st.sampled_from([0, DAY]),
    st.lists(st.tuples(st.booleans(), EPOCH), max_size=14),
    st.lists(EPOCH, max_size=10),
    st.integers(0, 2**32),
)
def test_a_successor_decides_with_the_facts_of_a_replay(of, before_ms, after_ms, beside, later, chance):
    fate = Fate(chance)
    log = MemoryLog(case(*of[:2])[1], fate, own=[FACTS])
    with mortal(fate):
        live = Generation("q0", rules_of(of, before_ms, LIVE), log, fate)
        replay = Generation("replay", rules_of(of, after_ms, REPLAY), log, fate)
        for is_of_replay, epoch in beside:
            (replay if is_of_replay else live).epoch(*epoch)
        live.begin()
        replay.begin()
        stop(replay, lambda: Generation("q1", rules_of(of, after_ms, LIVE), log, fate))
        for _ in range(400):
            if not is_ahead(replay, live):
                break
            for job in live.jobs:
                job.epoch(looks=4)
        successor = Generation("q1", rules_of(of, after_ms, LIVE), log, fate)
        successor.inherit(replay)
        ends = {tp: end for output in live.outputs for tp, end in output.committed.items()}
        successor.take_over(live)
        for epoch in later:
            successor.epoch(*epoch)
        successor.finish()
    old, shadow, new = (as_groups(jobs, log) for jobs in (live, replay, successor))
    former, calm = undisturbed(of, before_ms), undisturbed(of, after_ms)

    def is_seam_passed(place: tuple[int, int]) -> bool:
        return place[1] >= ends[TOPICS.transactions, place[0]]

    assert old.alerts() == {at: a for at, a in former.alerts().items() if not is_seam_passed(at)}
    assert new.alerts() == {at: a for at, a in calm.alerts().items() if is_seam_passed(at)}
    reports = sorted(shadow.reports() + new.reports())
    assert reports == calm.reports()
    labels = {TOPICS.labels, TOPICS.chargebacks}
    spoken = [letter for groups in (old, new) for letter in groups.dead_letters()]
    expected = calm.dead_letters()
    if before_ms is None:  # the former job knew no labels; the replay has refused the first ones
        spoken += [letter for letter in shadow.dead_letters() if letter[0] in labels]
    assert sorted(spoken) == expected
    # so is each label counted once: those before the seam by the former job, or by the replay
    first = shadow if before_ms is None else old
    assert labels_of(first) + labels_of(new) == labels_of(calm)
