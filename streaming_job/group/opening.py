"""The opening of a key group by a process: checks that state (P), output (Q) and log belong together.

A start makes all checks before it writes anything, so a start that is refused does not disturb a running job.
"""

import logging
import time
from dataclasses import dataclass

import numpy as np
import orjson

from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, PieceStore, seal
from streaming_job.decode import keys, snapshots
from streaming_job.group import last_record, settings_in_force
from streaming_job.group.committer import COMMIT_ID, LAST, GroupCommitter
from streaming_job.group.core import GroupCore
from streaming_job.group.loop import Follower, Pace
from streaming_job.group.positions import require_fit, require_output
from streaming_job.group.rules import Rules
from streaming_job.group.stored_positions import positions_of, save_positions
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.follower import LogFollower
from streaming_job.log.own_partitions import OwnPartitions
from streaming_job.log.records import Offsets, PartitionId, Records
from streaming_job.log.table_follower import TableFollower
from streaming_job.progress.writer import GroupProgress
from streaming_job.settings import JobSettings
from streaming_job.transaction.writer import GroupWriter
from streaming_job.transaction.written import Written

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""Interval of the progress records of an idle group."""
PAUSE_S = 0.1
INSTANCE = "instance"
"""Name in `Meta.extra`: the job instance that served the group last."""


@dataclass(frozen=True)
class Opening:
    """The arguments for opening a key group; picklable except for the rules' model loaders."""

    settings: JobSettings
    rules: Rules
    group: int
    query_id: str
    """Id in Spark's checkpoint: identifies the state to which the output belongs."""
    instance: str
    """Id of this run of the job, drawn when the job starts: the same in all its processes."""

    @property
    def client(self) -> dict[str, str]:
        """Settings of Kafka clients."""
        return {**self.settings.kafka, "bootstrap.servers": self.settings.bootstrap_servers}

    @property
    def pace(self) -> Pace:
        """The loop's sizes and intervals, from the settings."""
        settings = self.settings
        return Pace(
            settings.max_records, settings.max_bytes, settings.linger_ms / 1000,
            settings.commit_interval_ms / 1000, HEARTBEAT_S, settings.epoch_bytes,
        )  # fmt: skip


class OpenGroup:
    """A key group that this process serves, from epoch to epoch."""

    def __init__(
        self, opening: Opening, state: GroupState, meta: Meta, store: PieceStore, rebuilds: int
    ) -> None:
        """Take the group over.

        Args:
            opening: the group and its job.
            state: the group's state, as of `meta.token`.
            meta: metadata of the persisted pieces; updated in place.
            store: the persisted pieces.
            rebuilds: number of rebuilds of the working copy that this opening needed.

        Raises:
            OtherQueryError, CheckpointError: state and topics do not belong together.
            StateDamagedError: a piece of the state is missing or damaged.
            LogError: the log no longer holds what the state needs next, or cannot be read.
            FencedError: another instance of the job has taken over.
            SinkError: several attempts to take the group over failed, the brokers do not answer, or an open
                transaction hides the group's records.
            ModelUnavailableError: a proposal has to be judged again, its models cannot be reached, and no
                other champion can decide.
        """
        self.meta, self.state = meta, state
        settings, topics = opening.settings, opening.rules.topics
        own = opening.rules.key_groups.own(opening.group)
        own_partitions = {(topics.transactions, partition) for partition in own}
        positions, snapshot_end, last = positions_of(meta), None, None
        writer = GroupWriter(settings, opening.group, own, opening.query_id, opening.instance)
        is_ours = meta.extra.get(INSTANCE) == opening.instance
        if is_ours:  # a process of this instance has served the group, and made all checks
            last = meta.extra.get(LAST) and orjson.loads(meta.extra[LAST])
        else:
            positions, snapshot_end = _checked(opening, own_partitions, meta, writer)
        # if this instance has served the group, any other owner is newer: the group is not taken back from it
        starts = {tp: positions[tp] for tp in own_partitions}
        written = writer.take_over(starts, from_others=not is_ours, known=last)
        meta.extra[INSTANCE] = opening.instance
        if repeated := sum(written.offsets[tp] - positions[tp] for tp in own_partitions):
            log.warning(
                "key group %d: up to %d transactions are decided again, in silence", opening.group, repeated
            )
        record = last_record.newest(written.progress, meta.extra.get(LAST))
        if is_ours and opening.rules.merchants is not None:
            last_record.require_labels(record, written.commit_id)
        silent_before = {**last_record.positions(record), **written.offsets}
        settings_in_force.require_same(settings.decisive, positions, silent_before, record)
        core = GroupCore(
            opening.group, opening.rules, state, meta, store, silent_before, last_record.set_aside(record)
        )
        core.note_snapshot_end(snapshot_end)
        progress = GroupProgress(
            settings.job_id,
            opening.query_id,
            opening.group,
            settings.key_groups,
            record,
            written.commit_id,
            opening.rules.computed,
            settings.merchant_delay_ms,
            settings.decisive,
        )
        next_starts = {tp: max(offset, silent_before.get(tp, 0)) for tp, offset in positions.items()}
        meta.extra[COMMIT_ID] = written.commit_id
        self.committer = GroupCommitter(
            writer, progress, topics.transactions, next_starts, rebuilds, meta.extra
        )
        self._transactions = OwnPartitions(
            opening.client, {tp: positions[tp] for tp in own_partitions}, settings.by_broker
        )
        self._tables = TableFollower(
            opening.client,
            opening.rules.tables,
            (topics.model_rollouts,),
            {tp: offset for tp, offset in positions.items() if tp not in own_partitions},
            settings.max_records,
            settings.max_bytes,
            settings.by_broker,
        )
        last_written_s = record["written_at"] / 1000 if record else 0.0
        silent_s = min(max(time.time() - last_written_s, 0.0), HEARTBEAT_S)
        self.follower = Follower(
            core, self._transactions, self._tables, self.committer, opening.pace, written.offsets, silent_s
        )

    def close(self) -> None:
        """Stop fetching and close the producer."""
        for part in (self._transactions, self._tables, self.committer):
            part.close()


def _checked(
    opening: Opening, own_partitions: set[PartitionId], meta: Meta, writer: GroupWriter
) -> tuple[Offsets, int | None]:
    """Check that state, output and log belong together, before another instance is fenced.

    Returns:
        P by partition of all inputs, and the answer of `_snapshot_end`.
    """
    topics, written = opening.rules.topics, writer.written()
    with EndOffsets(opening.client, (topics.transactions, *opening.rules.tables)) as ends:
        first, end = with_retries(ends.first), with_retries(ends.last)
    # partitions added to a table since P was stored are read from their beginning
    positions: Offsets = {**_inputs(opening, own_partitions, first), **positions_of(meta)}
    written.require_query(opening.query_id)
    require_output(meta.extra.get(COMMIT_ID, 0), written.commit_id, written.unknown)
    require_fit(positions, written.offsets, first, end)
    if opening.rules.merchants is not None:
        _require_labels(writer, written, meta)
    return positions, _snapshot_end(opening, positions, end)


def _require_labels(writer: GroupWriter, written: Written, meta: Meta) -> None:
    """Check that the progress record of the last commit that `written` knows, or a later one, still exists.

    Raises:
        CheckpointError: it is lost.
    """
    stored = meta.extra.get(LAST)
    record = last_record.newest(written.progress, stored)
    if record is None or record["commit_id"] < written.commit_id:
        # a running job may have committed between the reads of the record and of the offsets, or another
        # group's open transaction may hide the record
        record = last_record.newest(writer.written(stable=True).progress, stored)
    last_record.require_labels(record, written.commit_id)


def begin(opening: Opening, meta: Meta, store: PieceStore) -> None:
    """Run a group's first epoch: store the log's first offsets as P, because retention may move them later.

    Raises:
        OtherQueryError: the group has written before, from another checkpoint.
        LogError: the group has written before, and the log has lost its first records.
        LogError, SinkError: the brokers do not answer.
        SinkError: an open transaction hides the group's records.
    """
    settings, topics = opening.settings, opening.rules.topics
    own = opening.rules.key_groups.own(opening.group)
    writer = GroupWriter(settings, opening.group, own, opening.query_id, opening.instance)
    written = writer.written()
    writer.close()
    written.require_query(opening.query_id)
    with EndOffsets(opening.client, (topics.transactions, *opening.rules.tables)) as ends:
        first = with_retries(ends.first)
    # a checkpoint that lost its first epochs may begin again, as long as the log is complete
    if written.commit_id and any(first.values()):
        raise LogError(
            f"the checkpoint is empty, but job {settings.job_id} has written output before, and the log has "
            "lost its first records; "
            "restore a copy of the checkpoint, or use another job id"
        )
    own_partitions = {(topics.transactions, partition) for partition in own}
    save_positions(meta, _inputs(opening, own_partitions, first))
    meta.extra[settings_in_force.SETTINGS] = settings.decisive
    seal(store, meta)


def change_settings(opening: Opening, meta: Meta, store: PieceStore) -> None:
    """Run an epoch that stores other settings with the state, and decides nothing.

    If the settings were stored together with the first decisions, a crash between the first output and the
    end of the epoch would leave output of the new settings with a state of the old ones.

    Raises:
        CheckpointError: P is behind Q.
        OtherQueryError, SinkError: see `begin`.
    """
    own = opening.rules.key_groups.own(opening.group)
    writer = GroupWriter(opening.settings, opening.group, own, opening.query_id, opening.instance)
    written = writer.written(stable=True)
    writer.close()
    written.require_query(opening.query_id)
    record = last_record.newest(written.progress, meta.extra.get(LAST))
    output = {**last_record.positions(record), **written.offsets}
    for change in settings_in_force.take_over(meta, opening.settings.decisive, positions_of(meta), output):
        log.warning("key group %d: %s, for all records after the last clean stop", opening.group, change)
    seal(store, meta)


def _inputs(opening: Opening, own_partitions: set[PartitionId], offsets: Offsets) -> Offsets:
    """Select a group's inputs: its own partitions of the transactions, and all partitions of the tables."""
    tables = opening.rules.tables
    return {tp: offset for tp, offset in offsets.items() if tp in own_partitions or tp[0] in tables}


def _snapshot_end(opening: Opening, positions: Offsets, ends: Offsets) -> int | None:
    """Read the profiles ahead from P to their ends, and return the earliest arrival that ends a snapshot.

    Otherwise a partition with rows of a later snapshot might be folded before the partition that holds the
    last row of the first snapshot, and those rows would count as rows of the first (see `decode.snapshots`).

    Returns:
        Arrival, ms, of a snapshot's last row; None if there is none from P on. If P is beyond the first
        snapshot, the row is a later snapshot's; the core then keeps the earlier arrival from the state.
    """
    topic = opening.rules.topics.profiles
    remaining = {tp: end for tp, end in ends.items() if tp[0] == topic and positions[tp] < end}
    log = LogFollower(opening.client, {tp: positions[tp] for tp in remaining}, opening.settings.by_broker)
    first_end, last_read = None, time.monotonic()
    try:
        while remaining:
            batches = log.take(opening.settings.max_records, opening.settings.max_bytes, PAUSE_S)
            for records in batches:
                first_end = snapshots.first_end(first_end, _earliest_end(records))
                last_read = time.monotonic()
            remaining = {tp: end for tp, end in remaining.items() if log.positions[tp] < end}
            if time.monotonic() - last_read > PATIENCE_S:
                raise LogError(f"no more records of {topic} arrive: {log.trouble()}; check the brokers")
    finally:
        log.close()
    return first_end


def _earliest_end(records: Records) -> int | None:
    """Return the earliest arrival of a record that ends a snapshot, ms; None without one."""
    candidates = np.flatnonzero(keys.may_end_snapshot(records.values, np.ones(len(records), dtype=np.bool_)))
    ends = [row for row in candidates.tolist() if snapshots.ends_snapshot(records.values[row].as_py())]
    return min(records.arrivals[ends].tolist(), default=None)
