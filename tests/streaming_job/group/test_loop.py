"""The loop of a key group: when it commits; output equal to one uninterrupted pass, whatever is killed."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from harness.group_batches import Group, as_records
from harness.job_world import World
from harness.log_world import SECOND, TOPICS
from harness.memory_job import MemoryJob, Output, mortal
from harness.memory_log import Fate, KilledError, as_written
from harness.random_trials import load_any
from harness.random_world import random_world
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.state.arena import MemoryArena
from feature_store.state.card_view import CardState, describe
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta, rebuild
from loadtests.oracle import Record
from streaming_job.decide import decider
from streaming_job.decide.applied_events import AppliedEvents
from streaming_job.group import loop
from streaming_job.group.core import GroupCore
from streaming_job.group.loop import Follower, Pace
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence
from streaming_job.group.trial_pieces import APPLIED, FEATURES
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.outcome import Outcome

pytestmark = pytest.mark.unit

WORLDS, TRANSACTIONS = 30, 40
SHAPES = [(1, 1, 0), (3, 1, 0), (2, 2, 1), (3, 2, 0), (4, 3, 0)]
"""Partitions, key groups, the observed group."""
COUNTS = (
    "transactions", "duplicates", "late", "profile_changes", "rollouts", "missing_profile",
    "late_table_changes", "scoring_failures",
)  # fmt: skip


@cache
def case(seed: int, partitions: int, groups: int) -> tuple[Rules, list[Record]]:
    """A job, and its log."""
    world = random_world(seed, TRANSACTIONS, partitions, trials=seed % 3 > 0)
    return world.rules(groups, load_any), as_written(world)


@cache
def uncut(seed: int, partitions: int, groups: int, group: int) -> tuple[Output, dict[Any, Any], bytes, bytes]:
    """One pass over the whole log: output, final state, pieces of applied events and of feature counts."""
    rules, log = case(seed, partitions, groups)
    transactions = [record for record in log if record.topic == rules.topics.transactions]
    decided = Group(group, rules)
    decided.take([record for record in log if record.topic in rules.topics.tables], transactions)
    output = Output()
    output.add(decided.core.take_outcome())
    return output, knowledge(rebuilt(decided.store)), decided.store[APPLIED], decided.store[FEATURES]


def rebuilt(pieces: Any) -> GroupState:
    state = GroupState(MemoryArena())
    rebuild(pieces, load_meta(pieces), state)
    return state


def knowledge(state: GroupState) -> dict[Any, Any]:
    """Contents of a state, except profile versions that no transaction can see any more."""
    known = {}
    for number in range(state.numbers_given):
        card = state.arena.arrays["cards"][number]
        contents: dict[str, Any] = describe(CardState(state, number))
        seen_at = contents["last_arrival_time"]
        versions = contents["profiles"]
        in_force = [
            n for n, version in enumerate(versions) if (version["known_from"] or 0) <= (seen_at or -1)
        ]
        contents["profiles"] = versions[: in_force[0] + 1] if in_force else versions
        known[int(card["lo"]), int(card["hi"])] = contents
    return known


BEFORE = st.one_of(st.none(), st.just("another process"), st.just("another machine"), st.integers(0, 8))
"""Event before an epoch; a number restores the checkpoint of that number."""
EPOCHS = st.lists(
    st.tuples(BEFORE, st.integers(0, 12), st.none() | st.integers(0, 90), st.booleans()), max_size=8
)
"""Event before an epoch; turns before the request for a cut; calls (`Fate.call`) before the one that kills
the process, if any; and whether Spark commits the epoch."""


@examples(60, thorough=10_000)
@given(st.integers(0, WORLDS - 1), st.sampled_from(SHAPES), EPOCHS, st.integers(0, 2**32))
def test_output_and_state_equal_those_of_an_uninterrupted_pass(seed, shape, epochs, chance):
    partitions, groups, group = shape
    rules, log = case(seed, partitions, groups)
    fate = Fate(chance)
    job = MemoryJob(group, rules, log, fate, goes_on=True)
    with mortal(fate):
        for before, looks, last_call, is_kept in epochs:
            if before == "another process":
                job.lose_process()
            elif before == "another machine":
                job.lose_copy()
            elif before is not None:
                job.restore(before)
            fate.left = last_call
            try:
                job.epoch(looks, is_kept=is_kept)
            except KilledError:
                continue
        fate.left = None
        calm = 0
        while not job.is_done:
            job.epoch(looks=40)
            calm += 1
            assert calm < 60
        result = knowledge(rebuilt(job.pieces))
    expected, known, applied, features = uncut(seed, *shape)
    assert job.output.records == expected.records
    assert job.output.counted() == expected.counted()
    assert AppliedEvents.decode(job.pieces[APPLIED]) == AppliedEvents.decode(applied)
    assert job.pieces[FEATURES] == features
    assert {name: job.output.counts[name] for name in COUNTS} == {
        name: expected.counts[name] for name in COUNTS
    }
    assert result == known


class Turns:
    """Collaborators of a loop that runs turn by turn; each turn takes a tenth of a second."""

    def __init__(self, taken: list[int]) -> None:
        """A log whose third transaction is the first alert; rollouts are the only table.

        Args:
            taken: number of transactions that each turn reads.
        """
        world = World(rollout=False)
        world.rollout("r1", 0, threshold=1.0, max_count_5m=2)
        for second in range(sum(taken)):
            world.tx(second * SECOND, 1.0)
        self.core = GroupCore(
            0, world.rules(), GroupState(MemoryArena()), Meta(), MemoryPieces(), Silence({})
        )
        for records in as_records(world.rollouts):
            self.core.fold(records)
        self._records, self._taken, self._turn = iter(world.transactions), taken, -1
        self.positions = {(TOPICS.transactions, 0): 0}
        self.transactions: list[tuple[int, int]] = []
        """(turn, number of alerts) of each Kafka transaction."""

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        self._turn += 1
        result = [next(self._records) for _ in range(self._taken[self._turn])]
        self.positions[TOPICS.transactions, 0] += len(result)
        return list(as_records(result))

    def limit(self, ends: Offsets | None) -> None:
        raise AssertionError("there is no output to replay up to")

    def lag(self) -> dict[str, int]:
        return {}

    def poll(self, wait_s: float = 0.0) -> list[Records]:
        return []

    def look(self, topics: Collection[str]) -> None:
        self.looked = topics

    def read_to_ends(self, topics: Collection[str]) -> Iterator[Records]:
        assert topics == self.looked
        yield from ()

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        assert ends == self.positions
        self.transactions.append((self._turn, len(take_outcome().records["fraud_alerts"])))

    def run(self, spacing_s: float = 0.0, clock: Callable[[], float] | None = None) -> "Turns":
        pace, pieces = Pace(100, 1 << 20, spacing_s, 0.25, 0.65), MemoryPieces()
        clock = clock or (lambda: (self._turn + 1) / 10)
        follower = Follower(self.core, self, self, self, pace, {}, clock=clock)
        for _ in self._taken:
            follower.advance(pieces)
        follower.cut(pieces)
        return self


def test_alerts_are_committed_at_once_positions_at_intervals_and_heartbeats_rarely():
    """Transactions that each turn reads, and the turns in which the loop commits.

    read    1 . . . 1 1 . . . . . . . .
    commit      |     |             |
    """
    assert Turns([1, 0, 0, 0, 1, 1, *[0] * 8]).run().transactions == [(2, 0), (5, 1), (12, 0)]


def test_the_rest_is_committed_at_the_end():
    assert Turns([0, 1]).run().transactions == [(1, 0)]
    assert Turns([0, 0]).run().transactions == []


class Drained(Turns):
    """Turns that need not be told where to stop."""

    def limit(self, ends: Offsets | None) -> None:
        pass


def test_a_group_is_done_when_it_has_decided_and_folded_up_to_the_ends():
    turns, ends = Drained([1, 1]), {(TOPICS.transactions, 0): 2, (TOPICS.transactions, 1): 9}
    pace = Pace(100, 1 << 20, 0.0, 0.25, 0.65)
    follower = Follower(turns.core, turns, turns, turns, pace, {}, clock=lambda: 0.0, until=ends)
    follower.advance(MemoryPieces())
    assert not follower.is_done
    follower.advance(MemoryPieces())
    assert follower.is_done


class TimedTurns(Turns):
    """Turns on a clock of their own: reading takes 10 ms, a Kafka transaction 20 ms, all else nothing."""

    now_ms = 0.0

    def __init__(self, taken: list[int]) -> None:
        super().__init__(taken)
        self.phases: Counter[str] = Counter()
        """Milliseconds by phase of the outcomes committed so far."""

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        self.now_ms += 10
        return super().take(most, most_bytes, wait_s)

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        self.phases.update(take_outcome().phases)
        self.now_ms += 20


def test_each_moment_of_a_group_is_in_one_phase(monkeypatch):
    clock = SimpleNamespace(perf_counter=lambda: 0.0)
    monkeypatch.setattr(decider, "time", clock)
    turns = TimedTurns([1, 0, 0, 1, 1])
    clock.perf_counter = lambda: turns.now_ms / 1000
    turns.run()
    turns.phases.update(turns.core.outcome.phases)
    spent = {name: round(ms) for name, ms in turns.phases.items() if round(ms)}
    assert spent == {"take": 5 * 10, "transaction": 2 * 20}
    assert sum(spent.values()) == turns.now_ms


def test_a_mini_batch_begins_only_some_time_after_the_one_before(monkeypatch):
    now = [0.0]
    begun: list[float] = []

    class Spaced(Turns):
        def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
            now[0] += 0.0005  # while it reads
            begun.append(now[0])
            return super().take(most, most_bytes, wait_s)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(loop, "time", SimpleNamespace(sleep=sleep))
    Spaced([1, 1, 0, 1]).run(0.004, clock=lambda: now[0])
    # after an empty turn there is nothing to wait for beyond the mini-batch before it
    assert [round(1_000 * at, 1) for at in begun] == [0.5, 5.0, 9.5, 10.0]
