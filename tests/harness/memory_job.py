"""A key group's job in memory: its processes, and the output and checkpoints that survive them.

The parts keep the contracts of `group.committer`, `runtime.epochs` and Spark's state store. The changes to
the store become durable together. The log is that of `memory_log`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from feature_store.state import deltas, journal, piece_records
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, PieceSink, load_meta, rebuild
from harness import settings_of_nowhere
from harness.log_world import TOPICS
from harness.memory_log import Fate, KilledError, MemoryLog, MemoryTables, MemoryTransactions
from loadtests.oracle import Record
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.group import core, loop, settings_in_force
from streaming_job.group.loop import Follower, Pace
from streaming_job.group.opening import OpenGroup, Opening, begin, change_settings
from streaming_job.group.rules import Rules
from streaming_job.group.staging import Cut, Staging
from streaming_job.group.stored_positions import positions_of
from streaming_job.log.records import Arrivals, Arrived, Offsets, PartitionId
from streaming_job.progress import last_record
from streaming_job.progress.last_record import COMMIT_ID, LAST
from streaming_job.progress.outcome import Outcome
from streaming_job.progress.trials import Trials
from streaming_job.settings import JobSettings
from streaming_job.takeover.inheritance import Former, inherit
from streaming_job.takeover.warm import WarmGroup
from streaming_job.transaction.written import GroupOutput

DELTA_ROWS, CARDS_PER_PIECE = 9, 3
FACTS = (TOPICS.merchant_facts, 0)


def settings_of(rules: Rules) -> JobSettings:
    """The settings of a job that connects to nothing."""
    return settings_of_nowhere.settings(
        key_groups=rules.key_groups.groups,
        topics=rules.topics,
        partitioner=rules.key_groups.partitioner,
        retired_transactions=rules.retired,
        allowed_lateness_ms=rules.limits.lateness_ms,
        allowed_skew_ms=rules.limits.skew_ms,
        merchant_facts=rules.merchants is not None,
    )


@dataclass
class Output:
    """The output topics, as committed."""

    records: dict[str, dict[PartitionId, list[bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Values in the order of the topic, by the field of `Topics` that names it and by the partition of their
    inputs; facts have no input."""
    counts: Counter[str] = field(default_factory=Counter)
    """Sums over all progress records."""
    trials: Trials = field(default_factory=Trials)
    """Sums over all progress records."""
    committed: Offsets = field(default_factory=dict)
    """Committed offsets of transactions."""
    progress: dict[str, Any] | None = None
    """The newest progress record: the fields from which the next process continues."""

    def add(self, outcome: Outcome) -> None:
        """Append an outcome."""
        for topic, records in outcome.records.items():
            for record in records:
                partition = getattr(record, "topic", TOPICS.transactions), record.partition
                self.records[topic][partition].append(record.encode())
        self.trials.add(outcome.trials)
        self.counts.update(outcome.counts)

    def values(self, topic: str) -> list[bytes]:
        """All values of a topic, which is named by its field of `Topics`."""
        return [value for values in self.records[topic].values() for value in values]

    def commit(
        self,
        ends: Offsets,
        newest: Mapping[PartitionId, Arrived],
        set_aside: Mapping[int, str] | None,
        settings: Mapping[str, Any],
    ) -> None:
        """Write the next progress record.

        Args:
            ends: positions after the commit.
            newest: the last record read of each partition, as in `Outcome`.
            set_aside: as in `Outcome`; None: unchanged.
            settings: those in force, as in `Meta.extra`.
        """
        earlier = last_record.newest_read(self.progress)
        read = {tp: max(filter(None, (earlier.get(tp), newest.get(tp)))) for tp in {*earlier, *newest}}
        before = self.progress["rollouts_set_aside"] if self.progress is not None else {}
        self.progress = {
            "commit_id": self.commit_id + 1,
            "written_at": 0,
            "settings": settings,
            "partitions": [
                {"topic": topic, "partition": partition, "end_offset": ends[topic, partition]}
                | ({"newest": read[topic, partition]._asdict()} if (topic, partition) in read else {})
                for topic, partition in ends
            ],
            "rollouts_set_aside": before if set_aside is None else {str(o): r for o, r in set_aside.items()},
            **self._silent_before(ends),
        }

    def _silent_before(self, ends: Offsets) -> dict[str, Any]:
        """The field of that name, while this output has not passed it; see `progress.writer`."""
        homes = (self.progress or {}).get("silent_before", ())
        parts = [part for home in homes for part in home["offsets"]]
        if all(part["offset"] <= ends[part["topic"], part["partition"]] for part in parts):
            return {}
        return {"silent_before": homes}

    @property
    def commit_id(self) -> int:
        """Number of the group's last Kafka transaction."""
        return self.progress["commit_id"] if self.progress is not None else 0

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
    """See `opening.EpochCommitter`; a kill may leave the transaction committed, or not."""

    def __init__(
        self, output: Output, fate: Fate, log: MemoryLog, opening: Opening, notes: dict[str, Any]
    ) -> None:
        """Continue after the committed output.

        Args:
            output: the output topics.
            fate: kills the process.
            log: to which facts are written.
            opening: the group and its job.
            notes: `Meta.extra` of the state, as for `GroupCommitter`.
        """
        self._output, self._fate, self._log, self._notes = output, fate, log, notes
        self._inputs, self._settings = opening.inputs, notes[settings_in_force.SETTINGS]
        self.summary: dict[str, int] = {}
        self.epoch = 0

    def begin(self) -> None:
        """See `opening.EpochCommitter`."""

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """See `loop.Committer`."""
        outcome = take_outcome()
        self._fate.call()
        output = self._output
        output.add(outcome)
        if facts := outcome.records["merchant_facts"]:
            self._log.append(FACTS, [(fact.record_key, fact.value) for fact in facts])
        reported = last_record.positions(output.progress)
        reported = {tp: end for tp, end in reported.items() if tp[0] in self._inputs}
        assert all(ends[partition] >= end for partition, end in reported.items()), "goes back behind Q"
        output.commit(ends, outcome.newest, outcome.set_aside, self._settings)
        output.committed |= {partition: ends[partition] for partition in output.committed}
        self._notes |= {LAST: orjson.dumps(output.progress).decode(), COMMIT_ID: output.commit_id}
        self._fate.call()


class MemoryConnections:
    """See `opening.Connections`; the log and the output are in memory."""

    def __init__(self, log: MemoryLog, output: Output, fate: Fate, opening: Opening) -> None:
        """Connect a process to the log and the output of its group."""
        self._log, self._output, self._fate, self._opening = log, output, fate, opening

    def written(self, known: last_record.Record | None = None, *, stable: bool = False) -> GroupOutput:
        """See `GroupWriter.written`."""
        output = self._output
        return GroupOutput(dict(output.committed), output.commit_id, None, None, output.progress)

    def take_over(self, ends: Offsets, *, from_others: bool, known: last_record.Record | None) -> GroupOutput:
        """See `GroupWriter.take_over`."""
        self._fate.call()
        committed = self._output.committed
        self._output.committed = {tp: max(end, committed.get(tp, 0)) for tp, end in ends.items()}
        self._fate.call()
        return self.written()

    def first(self) -> Offsets:
        """See `opening.Connections`."""
        return dict.fromkeys(self.ends(), 0)

    def ends(self) -> Offsets:
        """See `opening.Connections`."""
        return self._log.ends(self._opening.inputs)

    def arrivals(self, at: Offsets) -> Arrivals:
        """See `opening.Connections`."""
        found = self._log.between(at, {tp: offset + 1 for tp, offset in at.items()})
        arrivals: Arrivals = dict.fromkeys(tp for tp, offset in at.items() if offset < self._log.end(tp))
        return arrivals | {(record.topic, record.partition): record.timestamp for record in found}

    def topic_ids(self) -> dict[str, str]:
        """See `opening.Connections`."""
        return {topic: f"id of {topic}" for topic, _ in self.ends()}

    def snapshot_end(self, positions: Offsets, ends: Offsets) -> int | None:
        """See `opening.Connections`."""
        profiles = self._opening.rules.topics.profiles
        starts = {tp: offset for tp, offset in positions.items() if tp[0] == profiles}
        records = self._log.between(starts, ends)
        return min((record.timestamp for record in records if ends_snapshot(record.value)), default=None)

    def transactions(self, positions: Offsets) -> MemoryTransactions:
        """See `opening.Connections`."""
        return MemoryTransactions(self._log, self._fate, positions)

    def tables(self, positions: Offsets) -> MemoryTables:
        """See `opening.Connections`."""
        return MemoryTables(self._log, self._fate, positions, self._opening.tables)

    def committer(
        self,
        written: GroupOutput,
        record: last_record.Record | None,
        starts: Offsets,
        rebuilds: int,
        notes: dict[str, Any],
    ) -> MemoryCommitter:
        """See `opening.Connections`."""
        return MemoryCommitter(self._output, self._fate, self._log, self._opening, notes)

    def close(self) -> None:
        """See `opening.Connections`."""


@dataclass(frozen=True)
class MemoryOpening(Opening):
    """The arguments for opening the group; batches have a random size."""

    most: int = 1

    @property
    def pace(self) -> Pace:
        """Sizes and intervals that make mini-batches small."""
        return Pace(self.most, 1 << 20, 0.0, 0.2, 10.0)


class MortalStaging(Staging):
    """A staging whose process may be killed at each change, by its loop and by its task."""

    def __init__(self, fate: Fate) -> None:
        """Begin without changes."""
        super().__init__(1 << 40, 1e9)
        self._fate = fate

    def put(self, name: str, blob: bytes) -> None:
        """See `PieceSink.put`."""
        self._fate.call()
        super().put(name, blob)

    def remove(self, name: str) -> None:
        """See `PieceSink.remove`."""
        self._fate.call()
        super().remove(name)

    def write(self, store: PieceSink) -> Cut | None:
        """Write what is staged, up to the next cut; return that cut."""
        changes, cut = self.take(0.0)
        for change in changes:
            change.apply(store)
        return cut


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

    def __init__(
        self,
        group: int,
        rules: Rules,
        records: Sequence[Record] | MemoryLog,
        fate: Fate,
        *,
        goes_on: bool = False,
    ) -> None:
        """Start before the first epoch.

        Args:
            group: number.
            rules: of the job.
            records: of all topics, in the order in which they are written (`memory_log.as_written`); or a
                log that other groups follow, too.
            fate: draws how many records a call returns, and kills the process.
            goes_on: whether the loop may go on after a cut; otherwise each epoch ends as before a stop.
        """
        self._goes_on = goes_on
        self._group, self._rules, self._fate = group, rules, fate
        self._settings = settings_of(rules)
        self.log = records if isinstance(records, MemoryLog) else MemoryLog(records, fate)
        self.output = Output()
        self.checkpoints = [MemoryPieces()]
        """All checkpoints so far."""
        self.pieces = self.checkpoints[0]
        """The pieces of the current checkpoint."""
        self._mine = [(rules.topics.transactions, partition) for partition in rules.key_groups.own(group)]
        self.log.create(self._mine)
        self._now = 0.0
        self.until: Offsets | None = None
        """See `Opening`."""
        self.instance = "instance"
        """The run of the job; a test changes it for a new start."""
        self._meta, self._state = Meta(), self._no_cards()
        self._follower: Follower | None = None
        self._staging = MortalStaging(fate)
        self._cut_token = ""
        """Token of the last cut of the loop that runs."""
        self._copy_token: str | None = None
        """Token for which the working copy is valid; None while the loop goes on."""

    def _no_cards(self) -> GroupState:
        return GroupState(MemoryArena(), keeps_ids=self._rules.merchants is not None)

    def restore(self, number: int) -> None:
        """Continue in a new process without a working copy.

        Args:
            number: of the checkpoint to continue from, modulo the number of checkpoints.
        """
        self.pieces = self.checkpoints[number % len(self.checkpoints)]
        self.lose_copy()

    def restart(self, rules: Rules) -> None:
        """Continue in a new run of the job with other rules."""
        self._rules, self._settings, self.instance = rules, settings_of(rules), f"{self.instance}'"
        self.lose_copy()

    def lose_process(self) -> None:
        """The group moves to another process of the machine, which finds the working copy."""
        self._follower = None

    def lose_copy(self) -> None:
        """The group moves to another machine."""
        self._follower = self._copy_token = None

    def epoch(self, looks: int, *, is_kept: bool = True) -> None:
        """Run one epoch; see `group.serving`.

        Args:
            looks: turns of the loop between the task's start and the request for a cut.
            is_kept: whether Spark commits the epoch.

        Raises:
            KilledError: the process was killed; the epoch's changes to the store are lost.
        """
        store = MortalPieces(self.pieces, self._fate)
        try:
            self._follow(looks, store)
            self._go_on()  # while Spark commits
            self._fate.call()
        except KilledError:
            self.lose_copy()
            raise
        if is_kept:
            self.pieces = MemoryPieces(store)
            self.checkpoints.append(self.pieces)

    def inherit(self, stores: Mapping[int, MemoryPieces], former: Former) -> None:
        """Run a first epoch that takes the state from a predecessor's pieces."""
        store = MortalPieces(self.pieces, self._fate)
        inherit(self._opening(takes_over=True), stores, former, load_meta(store), store)
        self.pieces = MemoryPieces(store)
        self.checkpoints.append(self.pieces)

    def warm_epoch(self, looks: int, watch: Any) -> bool:
        """Run one epoch in silence, up to the output that is watched; see `takeover.warm`.

        Returns:
            Whether the state has reached that output.

        Raises:
            KilledError: the process was killed; the epoch's changes to the store are lost.
        """
        store, opening = MortalPieces(self.pieces, self._fate), self._opening(takes_over=True)
        meta, connections = load_meta(store), self._connections(opening)
        self.lose_copy()
        is_level = False
        if not positions_of(meta):
            begin(opening, connections, meta, store)
        else:
            state = self._no_cards()
            rebuild(store, meta, state)
            group = WarmGroup(opening, connections, state, meta, store, watch)
            for _ in range(looks):
                if not group.is_outdated:
                    group.advance()
            is_level = group.is_level
            group.cut()
        self._fate.call()
        self.pieces = MemoryPieces(store)
        self.checkpoints.append(self.pieces)
        return is_level

    def _follow(self, looks: int, store: MortalPieces) -> None:
        meta = load_meta(store)
        if self._follower is not None and self._cut_token != meta.token:
            self.lose_copy()
        if not positions_of(meta):
            opening = self._opening()
            begin(opening, self._connections(opening), meta, store)
            return
        if not settings_in_force.are_stored(meta, self._settings.decisive):
            opening = self._opening()
            change_settings(opening, self._connections(opening), meta, store)
            return
        if self._follower is None:
            self._staging = MortalStaging(self._fate)
            self._follower = self._opened(meta, store)
        for _ in range(looks):
            self._fate.call()
            self._advance()
            if self._fate.random.random() < 0.3:
                assert self._staging.write(store) is None
        positions = self._follower.cut(self._staging)
        self._copy_token = self._meta.token
        self._staging.cut(Cut(self._meta.token, positions, {}))
        self._go_on()  # before the task takes the cut
        cut = self._staging.write(store)
        assert cut is not None
        self._cut_token = cut.token

    def _advance(self) -> None:
        assert self._follower is not None
        self._copy_token = None
        self._follower.advance(self._staging)

    def _go_on(self) -> None:
        """Perhaps take some turns, whose changes belong to the next epoch."""
        if self._goes_on and self._follower is not None and self._fate.random.random() < 0.5:
            for _ in range(self._fate.up_to(3)):
                self._advance()

    def _opening(self, *, takes_over: bool = False) -> MemoryOpening:
        return MemoryOpening(
            self._settings,
            self._rules,
            self._group,
            "query",
            self.instance,
            self._clock,
            takes_over,
            self.until,
            1 + self._fate.up_to(9),
        )

    def _connections(self, opening: Opening) -> MemoryConnections:
        return MemoryConnections(self.log, self.output, self._fate, opening)

    def _opened(self, meta: Meta, store: MortalPieces) -> Follower:
        """Open the group as `group.processor` does."""
        if self._copy_token != meta.token:
            self._state = self._no_cards()
            rebuild(store, meta, self._state)
        self._meta = meta
        opening = self._opening()
        connections = self._connections(opening)
        return OpenGroup(opening, connections, self._state, meta, store, rebuilds=0).follower

    def _clock(self) -> float:
        self._now += self._fate.random.choice((0.0, 0.0, 0.05, 0.3, 11.0))
        return self._now

    @property
    def is_done(self) -> bool:
        """Whether the whole log is written, decided and persisted."""
        ends = self.log.ends(self._opening().tables) | {p: self.log.end(p) for p in self._mine}
        return self.log.is_complete and self.positions == ends

    @property
    def positions(self) -> Offsets:
        """P as persisted."""
        return positions_of(load_meta(self.pieces))

    def stop(self) -> None:
        """Run a last epoch, after whose cut the loop does not go on; the next has a new process."""
        self._goes_on, goes_on = False, self._goes_on
        self.epoch(0)
        self._goes_on = goes_on
        self.lose_process()

    def drain(self, until: Offsets) -> None:
        """Continue in a new process that ends at these offsets of all inputs."""
        self.lose_process()
        tables = self._opening().tables
        self.until = {tp: end for tp, end in until.items() if tp in self._mine or tp[0] in tables}

    @property
    def is_drained(self) -> bool:
        """Whether all is decided and persisted up to the ends of the drain."""
        return self.positions == self.until
