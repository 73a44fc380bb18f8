"""A key group's job in memory: its processes, and the output and checkpoints that survive them.

The parts keep the contracts of `group.committer`, `runtime.epochs` and Spark's state store. The changes to
the store become durable together. The log is that of `memory_log`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from feature_store.state import deltas, journal, piece_records
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta, rebuild, seal
from harness.job_world import TOPICS
from harness.memory_log import Fate, KilledError, MemoryLog, MemoryTables, MemoryTransactions
from loadtests.oracle import Record
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.group import core, loop, settings_in_force
from streaming_job.group.core import GroupCore
from streaming_job.group.loop import Follower, Pace
from streaming_job.group.positions import require_fit
from streaming_job.group.rules import Rules
from streaming_job.group.stored_positions import positions_of, save_positions
from streaming_job.log.records import Offsets, PartitionId
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.trials import Trials

DELTA_ROWS, CARDS_PER_PIECE = 9, 3
FACTS = (TOPICS.merchant_facts, 0)


@dataclass
class Output:
    """The output topics, as committed."""

    alerts: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Alerts by partition of their transactions, in the order of the topic."""
    suppressed: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    shadow_alerts: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    dead_letters: dict[PartitionId, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Dead letters by partition of their records, in the order of the topic."""
    facts: list[bytes] = field(default_factory=list)
    """Facts of this group, in the order of the topic."""
    counts: Counter[str] = field(default_factory=Counter)
    """Sums over all progress records."""
    trials: Trials = field(default_factory=Trials)
    """Sums over all progress records."""
    committed: Offsets = field(default_factory=dict)
    """Committed offsets of transactions."""
    reported: Offsets = field(default_factory=dict)
    """End offsets in the newest progress record."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings in the newest progress record."""

    def add(self, outcome: Outcome) -> None:
        """Append an outcome."""
        for content, topic in (
            (outcome.alerts, self.alerts),
            (outcome.suppressed, self.suppressed),
            (outcome.shadow_alerts, self.shadow_alerts),
        ):
            for alert in content:
                topic[alert.partition].append(alert.value)
        self.trials.add(outcome.trials)
        for letter in outcome.dead_letters:
            self.dead_letters[letter.topic, letter.partition].append(letter.encode())
        self.facts += outcome.facts
        self.counts.update(outcome.counts)

    def counted(self) -> dict[str, Any]:
        """Counts of the trials without times and float sums; such sums depend on the order of addition."""
        content: dict[str, Any] = orjson.loads(orjson.dumps(self.trials.to_json()))
        for trial in content.values():
            for counts in trial["challengers"].values():
                for name in ("time_ms", "champion_time_ms"):
                    del counts[name]
                for name in ("scores", "champion_scores"):
                    del counts[name]["sum"]
        return content


class MemoryCommitter:
    """See `loop.Committer`; a kill may leave the transaction committed, or not."""

    def __init__(
        self, group: int, output: Output, fate: Fate, log: MemoryLog, settings: dict[str, Any]
    ) -> None:
        """Continue after the committed output of a group."""
        self._group, self._output, self._fate, self._log = group, output, fate, log
        self._settings = settings

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """See `loop.Committer`."""
        outcome = take_outcome()
        self._fate.call()
        output = self._output
        output.add(outcome)
        if outcome.facts:
            self._log.append(FACTS, [(str(self._group).encode(), fact) for fact in outcome.facts])
        assert all(ends[partition] >= end for partition, end in output.reported.items()), "goes back behind Q"
        output.reported, output.settings = dict(ends), self._settings
        output.committed |= {partition: ends[partition] for partition in output.committed}
        self._fate.call()


class MemoryEpoch:
    """See `loop.Epoch`; over after a number of calls of `is_over`."""

    def __init__(self, looks: int, fate: Fate) -> None:
        """Begin."""
        self._left, self._fate = looks, fate

    def is_over(self) -> bool:
        """See `loop.Epoch`."""
        self._fate.call()
        self._left -= 1
        return self._left < 0

    def ask_for_end(self) -> None:
        """See `loop.Epoch`."""
        self._left = min(self._left, 1)


class MortalPieces(MemoryPieces):
    """A store whose process may be killed at each `put` and `remove`."""

    def __init__(self, pieces: MemoryPieces, fate: Fate) -> None:
        """Copy the pieces: changes become durable together, at the epoch's end."""
        super().__init__(pieces)
        self._fate = fate

    def put(self, name: str, blob: bytes) -> None:
        """See `PieceStore.put`."""
        self._fate.call()
        super().put(name, blob)

    def remove(self, name: str) -> None:
        """See `PieceStore.remove`."""
        self._fate.call()
        super().remove(name)


@contextmanager
def mortal(fate: Fate) -> Iterator[None]:
    """Count failpoints as calls; make deltas and pieces so small that a snapshot has several newer deltas."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "reach", fate.call)
        patch.setattr(loop, "reach", fate.call)
        patch.setattr(loop, "DELTA_ROWS", DELTA_ROWS)
        patch.setattr(journal, "SNAPSHOT_BYTES_PER_DELTA_BYTE", 1)
        for module in (deltas, journal, piece_records):
            patch.setattr(module, "CARDS_PER_PIECE", CARDS_PER_PIECE)
        yield


class MemoryJob:
    """One key group over its epochs."""

    def __init__(self, group: int, rules: Rules, records: Sequence[Record] | MemoryLog, fate: Fate) -> None:
        """Start before the first epoch.

        Args:
            group: number.
            rules: of the job.
            records: of all topics, in the order in which they are written (`memory_log.as_written`); or a
                log that other groups follow, too.
            fate: draws how many records a call returns, and kills the process.
        """
        self._group, self._rules, self._fate = group, rules, fate
        self.log = records if isinstance(records, MemoryLog) else MemoryLog(records, fate)
        self.output = Output()
        self.checkpoints = [MemoryPieces()]
        """All checkpoints so far."""
        self.pieces = self.checkpoints[0]
        """The pieces of the current checkpoint."""
        own = rules.key_groups.own(group)
        self._mine = [
            partition for partition in self.log.ends([rules.topics.transactions]) if partition[1] in own
        ]
        self._now = 0.0
        self._meta, self._state, self._follower = Meta(), self._no_cards(), None

    def _no_cards(self) -> GroupState:
        return GroupState(MemoryArena(), keeps_ids=self._rules.merchants is not None)

    def restore(self, number: int) -> None:
        """Continue in a new process without a working copy.

        Args:
            number: of the checkpoint to continue from, modulo the number of checkpoints.
        """
        self.pieces = self.checkpoints[number % len(self.checkpoints)]
        self.lose_copy()

    @property
    def _settings(self) -> dict[str, Any]:
        limits = self._rules.limits
        return {"allowed_lateness_ms": limits.lateness_ms, "allowed_skew_ms": limits.skew_ms}

    def restart(self, rules: Rules) -> None:
        """Continue in a new run of the job with other rules."""
        self._rules = rules
        self.lose_copy()

    def lose_process(self) -> None:
        """The group moves to another process of the machine, which finds the working copy."""
        self._follower = None

    def lose_copy(self) -> None:
        """The group moves to another machine."""
        self._follower, self._meta = None, Meta()

    def epoch(self, looks: int) -> None:
        """Run one epoch; see `group.processor`.

        Raises:
            KilledError: the process was killed; the epoch's changes to the store are lost.
        """
        store = MortalPieces(self.pieces, self._fate)
        try:
            self._follow(looks, store)
            self._fate.call()  # before Spark commits
        except KilledError:
            self.lose_copy()
            raise
        self.pieces = MemoryPieces(store)
        self.checkpoints.append(self.pieces)

    def _follow(self, looks: int, store: MortalPieces) -> None:
        meta = load_meta(store)
        if not positions_of(meta):
            tables = self.log.ends(self._rules.tables)
            save_positions(meta, dict.fromkeys([*self._mine, *tables], 0))
            meta.extra[settings_in_force.SETTINGS] = self._settings
            seal(store, meta)
            return
        if not settings_in_force.are_stored(meta, self._settings):
            output = {**self.output.reported, **self.output.committed}
            settings_in_force.take_over(meta, self._settings, positions_of(meta), output)
            seal(store, meta)
            return
        if self._follower is None:
            self._follower = self._opened(meta, store)
        self._follower.run(MemoryEpoch(looks, self._fate), store)

    def _opened(self, meta: Meta, store: MortalPieces) -> Follower:
        """See `group.opening`."""
        fate, output, topics = self._fate, self.output, self._rules.topics
        if self._meta.token != meta.token:
            self._state = self._no_cards()
            rebuild(store, meta, self._state)
        self._meta = meta
        positions, ends = positions_of(meta), self.log.ends([topics.transactions, *self._rules.tables])
        require_fit(positions, output.committed, dict.fromkeys(ends, 0), ends)
        fate.call()
        output.committed = {
            partition: max(positions[partition], output.committed.get(partition, 0))
            for partition in self._mine
        }
        fate.call()
        silent_before = {**output.reported, **output.committed}
        record = {settings_in_force.SETTINGS: output.settings} if output.settings else None
        settings_in_force.require_same(self._settings, positions, silent_before, record)
        heart = GroupCore(self._group, self._rules, self._state, meta, store, silent_before)
        tables = {
            partition: offset for partition, offset in positions.items() if partition[0] in self._rules.tables
        }
        for record in self.log.between(tables, ends):
            if record.topic == topics.profiles and ends_snapshot(record.value):
                heart.note_snapshot_end(record.timestamp)
        return Follower(
            heart,
            MemoryTransactions(self.log, fate, {partition: positions[partition] for partition in self._mine}),
            MemoryTables(self.log, fate, tables, self._rules.tables),
            MemoryCommitter(self._group, output, fate, self.log, self._settings),
            Pace(1 + fate.up_to(9), 1 << 20, 0.003, 0.2, 10.0, 2_000),
            output.committed,
            clock=self._clock,
        )

    def _clock(self) -> float:
        self._now += self._fate.random.choice((0.0, 0.0, 0.05, 0.3, 11.0))
        return self._now

    @property
    def is_done(self) -> bool:
        """Whether the whole log is written, decided and persisted."""
        ends = self.log.ends(self._rules.tables) | {p: self.log.end(p) for p in self._mine}
        return self.log.is_complete and positions_of(load_meta(self.pieces)) == ends
