"""The audit judges the transactions of a job whose cards have moved, as if they had stayed."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from harness import settings_of_nowhere
from harness.job_world import PARTITIONER
from harness.log_world import TOPICS
from harness.memory_log import Fate, MemoryLog, as_written
from harness.random_trials import load_any
from harness.random_world import random_world

from loadtests.audit.core import AuditCore
from loadtests.audit.memory import Memory
from loadtests.audit.moves import (
    Drained,
    Seam,
    Stretch,
    classes,
    moves_in,
    retired,
    split,
    stretches,
)
from loadtests.audit.verify import too_late
from loadtests.oracle import Model, Record, SchemaLog, Scorer
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.log.losses import NOTHING_LOST, Losses
from streaming_job.log.partitioner import Layout, Partitioner

pytestmark = pytest.mark.unit

FIRST = Layout(TOPICS.transactions, PARTITIONER, 4)
SECOND = Layout("second", Partitioner.CRC32, 6)
THIRD = Layout("second", Partitioner.CRC32, 9)
SETTINGS = settings_of_nowhere.settings(topics=Topics(transactions="second"), partitioner=Partitioner.CRC32)


class ReadLog:
    """The reads of an audit, over a log in memory."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def ends(self, topic: str) -> dict[int, int]:
        return {partition: end for (_, partition), end in self._log.ends([topic]).items()}

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        last = self.ends(topic) if ends is None else ends
        first = {(topic, partition): (starts or {}).get(partition, 0) for partition in last}
        yield from self._log.between(first, {(topic, partition): end for partition, end in last.items()})


def load(scorer: Scorer) -> Model:
    return load_any(scorer.model)


def judged(log: ReadLog, parts: list[Stretch]) -> tuple[Counter[str], list[str], Counter[str]]:
    """Kinds, alerts without their sources, and reasons of the transactions."""
    names = (*TOPICS.tables, TOPICS.dead_letters)
    ends = {(name, part): end for name in names for part, end in log.ends(name).items()}
    core = AuditCore(log, SETTINGS, load, Memory.empty(SETTINGS))  # type: ignore[arg-type]
    core.follow_rollouts([Seam(0, {})])
    core.read_tables(ends)
    kinds, reasons, alerts = Counter[str](), Counter[str](), []
    for each in core.judge(parts):
        kinds.update({kind.value: number for kind, number in each.kinds.items()})
        for outcome in each.outcomes:
            reasons.update([str(outcome.reason)])
            alerts += [
                json.dumps({**alert, "source": None}) for field, alert in outcome.records if "alerts" in field
            ]
    return kinds, sorted(alerts), reasons


@pytest.mark.parametrize("seed", range(4))
def test_outcomes_are_those_of_cards_that_stayed(seed: int) -> None:
    world = random_world(seed, 120, FIRST.partitions, trials=False)
    records, fate = as_written(world), Fate(seed)
    stayed = MemoryLog(records, fate)
    moved = MemoryLog(records, fate)
    moves = []
    for number, (before, after) in enumerate(((FIRST, SECOND), (SECOND, THIRD)), 1):
        moved.grow(60)
        ends = moved.ends([before.topic])
        moves.append(Drained(number, before, tuple(ends[before.topic, p] for p in range(before.partitions))))
        moved.move(FIRST, after)
    for log in stayed, moved:
        while not log.is_complete:
            log.grow(60)
    reader = ReadLog(moved)
    parts = stretches(moves, THIRD, reader.ends("second"))
    expected = judged(ReadLog(stayed), stretches([], FIRST, ReadLog(stayed).ends(FIRST.topic)))
    assert judged(reader, parts) == expected


def test_stretches_of_a_topic_follow_one_another() -> None:
    moves = [Drained(3, FIRST, (5, 6, 7, 8)), Drained(9, SECOND, (1, 2, 3, 4, 5, 6))]
    first, second, third = stretches(moves, THIRD, {0: 10, 8: 20})
    assert (first.starts, first.ends) == ({}, {0: 5, 1: 6, 2: 7, 3: 8})
    assert (second.starts, second.ends[5]) == ({}, 6)
    assert (third.starts[0], third.ends) == (1, {0: 10, 8: 20})
    assert retired(moves, THIRD) == {(TOPICS.transactions, p): 5 + p for p in range(4)}
    assert [classes(parts) for parts in ([first], [second, third], [first, second])] == [4, 3, 1]


def test_records_of_a_topic_that_was_left_are_dead_letters_of_their_own_reason() -> None:
    log = MemoryLog(as_written(random_world(1, 30, FIRST.partitions)), Fate(1))
    while not log.is_complete:
        log.grow(60)
    log.create([(FIRST.topic, 4)])  # by hand, before the move
    log.append((FIRST.topic, 4), [(b"card", b"{}")])
    ends, schemas = log.ends([FIRST.topic]), SchemaLog()
    moves = [Drained(3, FIRST, tuple(max(0, ends[FIRST.topic, p] - 3) for p in range(4)))]
    letters = too_late(ReadLog(log), SETTINGS, moves, SECOND, ends, schemas)  # type: ignore[arg-type]
    assert {letter.partition for letter in letters} == set(range(5))
    assert {letter.reason for letter in letters} == {Reason.RETIRED_TOPIC}
    assert not too_late(ReadLog(log), SETTINGS, moves, SECOND, {}, schemas)  # type: ignore[arg-type]


def test_moves_are_read_from_the_seams_of_the_job() -> None:
    takeover = {"commit_id": 7, "drained": {"layout": FIRST.to_json(), "ends": [1, 2, 3, 4]}}
    seam, later = ({"commit_id": number, "takeover": takeover} for number in (7, 8))
    records = [
        Record("job-progress", 0, 0, 0, key, json.dumps(value).encode())
        for key, value in ((b"job", seam), (b"job", later), (b"job", seam), (b"other", seam))
    ]
    assert moves_in(records, "job") == [Drained(7, FIRST, (1, 2, 3, 4))]


def test_stretches_are_split_at_takeovers_after_which_transactions_are_decided_otherwise() -> None:
    layouts = [Layout(topic, Partitioner.MURMUR2, 2) for topic in ("a", "b")]
    moves = [Drained(5, layouts[0], (10, 20))]
    parts = stretches(moves, layouts[1], {0: 7, 1: 9})
    assert split(parts, moves, [Seam(0, {})]) == parts
    lost = Losses(profiles_before=100)
    late = split(
        parts, moves, [Seam(0, {}, has_facts=False), Seam(8, {("b", 0): 3, ("b", 1): 4}, losses=lost)]
    )
    assert [(part.layout.topic, part.has_facts, part.losses) for part in late] == [
        ("a", False, NOTHING_LOST), ("b", False, NOTHING_LOST), ("b", True, lost)
    ]  # fmt: skip
    assert (late[1].starts, late[1].ends) == ({}, {0: 3, 1: 4})
    assert (late[2].starts, late[2].ends) == ({0: 3, 1: 4}, {0: 7, 1: 9})
    early = split(
        parts, moves, [Seam(0, {}, has_facts=False), Seam(2, {("a", 0): 3, ("a", 1): 4, ("left", 0): 9})]
    )
    assert [(part.layout.topic, part.has_facts) for part in early] == [("a", False), ("a", True), ("b", True)]
    unknown = split(parts, moves, [Seam(0, {}), Seam(8, {("b", 0): 3}, rollouts="r")])
    assert [(part.starts, part.ends, part.rollouts) for part in unknown[1:]] == [
        ({}, {0: 3, 1: 9}, ""), ({0: 3, 1: 9}, {0: 7, 1: 9}, "r"),
    ]  # fmt: skip
    first, second, third = (Losses(windows_before=before) for before in (1, 2, 3))
    seams = [
        Seam(0, {}, True, first), Seam(2, {("a", 0): 3, ("a", 1): 4}, True, second),
        Seam(8, {("b", 0): 5, ("b", 1): 6}, True, third),
    ]  # fmt: skip
    both = split(parts, moves, seams)
    assert [part.losses for part in both] == [first, second, second, third]
    assert [(part.layout.topic, part.starts, part.ends) for part in both] == [
        ("a", {}, {0: 3, 1: 4}), ("a", {0: 3, 1: 4}, {0: 10, 1: 20}),
        ("b", {}, {0: 5, 1: 6}), ("b", {0: 5, 1: 6}, {0: 7, 1: 9}),
    ]  # fmt: skip
