"""A key group taken over by a process: state at P, output at Q, and whether they belong together.

Everything is asked before anything is written: a start that must not be leaves the job that runs alone.
"""

import logging
import time
from dataclasses import dataclass

import numpy as np
import orjson

from feature_store.group_state import GroupState
from feature_store.journal import Meta, PieceStore, seal
from streaming_job.decode import keys, snapshots
from streaming_job.group.core import GroupCore, Rules, positions_of, save_positions
from streaming_job.group.loop import Follower, Pace
from streaming_job.group.positions import require_fit, require_said
from streaming_job.group.voice import COMMIT_ID, LAST, GroupVoice
from streaming_job.log.end_offsets import EndOffsets, answered
from streaming_job.log.errors import PATIENCE_S, LogError
from streaming_job.log.follower import LogFollower
from streaming_job.log.own_partitions import OwnPartitions
from streaming_job.log.records import Offsets, Place, Records
from streaming_job.log.table_follower import TableFollower
from streaming_job.progress.writer import GroupProgress
from streaming_job.runtime.checkpoint import CheckpointError
from streaming_job.settings import JobSettings
from streaming_job.transaction.writer import GroupWriter
from streaming_job.transaction.written import Written

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""An idle group says so often that it is there."""
PAUSE_S = 0.1
INSTANCE = "instance"
"""Name in `Meta.extra`: of the job's process that had the group last."""


@dataclass(frozen=True)
class Opening:
    """What is needed to open any key group; picklable but for the rules' model loader."""

    settings: JobSettings
    rules: Rules
    group: int
    query_id: str
    """Of Spark's checkpoint: names the state to which the output belongs."""
    instance: str
    """Of the job's process."""

    @property
    def client(self) -> dict[str, str]:
        """Settings of Kafka clients."""
        return {**self.settings.kafka, "bootstrap.servers": self.settings.bootstrap_servers}

    @property
    def pace(self) -> Pace:
        """As set."""
        known = self.settings
        return Pace(
            known.max_records, known.max_bytes, known.linger_ms / 1000, known.commit_interval_ms / 1000,
            HEARTBEAT_S, known.epoch_bytes,
        )  # fmt: skip


class OpenGroup:
    """A key group that this process serves, from epoch to epoch."""

    def __init__(
        self, opening: Opening, state: GroupState, meta: Meta, store: PieceStore, rebuilds: int
    ) -> None:
        """Take the group over.

        Args:
            opening: which group, of which job.
            state: as `meta` names it.
            meta: of the persisted pieces; moves on.
            store: the persisted pieces.
            rebuilds: of the working copy, made to get here.

        Raises:
            OtherQueryError, CheckpointError: state and topics do not belong together.
            LogError: the log no longer holds what the state needs next.
            FencedError: another instance of the job has taken over.
            SinkError: the brokers do not answer.
        """
        self.meta, self.state = meta, state
        settings, topics = opening.settings, opening.rules.topics
        own = opening.rules.key_groups.own(opening.group)
        mine = {(topics.transactions, partition) for partition in own}
        positions, snapshot_end, last = positions_of(meta), None, None
        writer = GroupWriter(settings, opening.group, own, opening.query_id, opening.instance)
        is_ours = meta.extra.get(INSTANCE) == opening.instance
        if is_ours:  # from another process of this instance, which has looked at everything
            last = meta.extra.get(LAST) and orjson.loads(meta.extra[LAST])
        else:
            positions, snapshot_end = _checked(opening, mine, meta, writer.written())
        # once this instance has had the group, it is never taken from another: that one has taken over
        starts = {place: positions[place] for place in mine}
        written = writer.take_over(starts, from_others=not is_ours, known=last)
        meta.extra[INSTANCE] = opening.instance
        if again := sum(written.offsets[place] - positions[place] for place in mine):
            log.warning("key group %d: %d transactions are decided again, in silence", opening.group, again)
        quiet = {**_reported(written, opening.rules), **written.offsets}
        core = GroupCore(opening.group, opening.rules, state, meta, store, quiet, _set_aside(written))
        core.learn_snapshot_end(snapshot_end)
        progress = GroupProgress(
            settings.job_id,
            opening.query_id,
            opening.group,
            settings.key_groups,
            written.progress,
            written.commit_id,
            opening.rules.computed,
        )
        said = {place: max(offset, quiet.get(place, 0)) for place, offset in positions.items()}
        meta.extra[COMMIT_ID] = written.commit_id
        self.voice = GroupVoice(writer, progress, topics.transactions, said, rebuilds, meta.extra)
        self._transactions = OwnPartitions(opening.client, {place: positions[place] for place in mine})
        self._tables = TableFollower(
            opening.client,
            EndOffsets(opening.client, opening.rules.tables),
            {place: offset for place, offset in positions.items() if place not in mine},
            settings.max_records,
            settings.max_bytes,
        )
        told_at = written.progress["written_at"] / 1000 if written.progress else 0.0
        silent_s = min(max(time.time() - told_at, 0.0), HEARTBEAT_S)
        self.follower = Follower(
            core, self._transactions, self._tables, self.voice, opening.pace, written.offsets, silent_s
        )

    def close(self) -> None:
        """Stop fetching and let the producer go."""
        for part in (self._transactions, self._tables, self.voice):
            part.close()


def _checked(opening: Opening, mine: set[Place], meta: Meta, written: Written) -> tuple[Offsets, int | None]:
    """See that state, output and log belong together, before anybody is fenced.

    Returns:
        P by partition of all inputs, and when the first snapshot of the profiles ended, if the log tells.
    """
    topics = opening.rules.topics
    with EndOffsets(opening.client, (topics.transactions, *opening.rules.tables)) as ends:
        first, end = answered(ends.first), answered(ends.last)
    # partitions that a table has got since are read from their beginning
    positions: Offsets = {**_inputs(opening, mine, first), **positions_of(meta)}
    written.require_query(opening.query_id)
    require_said(meta.extra.get(COMMIT_ID, 0), written.commit_id)
    require_fit(positions, written.offsets, first, end)
    return positions, _snapshot_end(opening, positions, end)


def begin(opening: Opening, meta: Meta, store: PieceStore) -> None:
    """The first epoch of all: only note where the log begins, so that no retention can move it.

    Raises:
        OtherQueryError: the job has written before, from another checkpoint.
        LogError: the log's beginning is gone, and with it what the job has decided before.
    """
    settings, topics = opening.settings, opening.rules.topics
    own = opening.rules.key_groups.own(opening.group)
    writer = GroupWriter(settings, opening.group, own, opening.query_id, opening.instance)
    written = writer.written()
    writer.close()
    written.require_query(opening.query_id)
    with EndOffsets(opening.client, (topics.transactions, *opening.rules.tables)) as ends:
        first = answered(ends.first)
    # a checkpoint that lost its first epochs may begin again, as long as the log is whole
    if written.commit_id and any(first.values()):
        raise LogError(
            f"the checkpoint is empty, and the log no longer begins where job {settings.job_id} began; "
            "restore a copy of the checkpoint, or use another job id"
        )
    mine = {(topics.transactions, partition) for partition in own}
    save_positions(meta, _inputs(opening, mine, first))
    seal(store, meta)


def _inputs(opening: Opening, mine: set[Place], offsets: Offsets) -> Offsets:
    """Of a group's inputs: its own partitions of the transactions, all of the tables'."""
    tables = opening.rules.tables
    return {place: offset for place, offset in offsets.items() if place in mine or place[0] in tables}


def _reported(written: Written, rules: Rules) -> Offsets:
    """Where the group's last progress record says that it was; the only word on how far it had the tables.

    Raises:
        CheckpointError: it is gone, and with it which labels have become facts.
    """
    last = written.progress["commit_id"] if written.progress else 0
    if rules.merchants is not None and last < written.commit_id:
        raise CheckpointError(
            f"the group has written {written.commit_id} Kafka transactions, its last progress record is of "
            f"{last}: which labels are facts already is not known; restore the progress topic, or use "
            "another job id"
        )
    parts = written.progress["partitions"] if written.progress else ()
    return {(part["topic"], part["partition"]): part["end_offset"] for part in parts}


def _set_aside(written: Written) -> dict[int, str]:
    """What the group's last progress record says of rollouts that cannot decide; binding."""
    told = written.progress.get("rollouts_set_aside", {}) if written.progress else {}
    return {int(offset): reason for offset, reason in told.items()}


def _snapshot_end(opening: Opening, positions: Offsets, ends: Offsets) -> int | None:
    """When the first snapshot of the profiles ended, looked up before any of its rows is folded.

    Rows of a later snapshot may lie in a partition that is read before the one that tells where the first
    ended.
    """
    topic = opening.rules.topics.profiles
    left = {place: end for place, end in ends.items() if place[0] == topic and positions[place] < end}
    log = LogFollower(opening.client, {place: positions[place] for place in left})
    found, heard = None, time.monotonic()
    try:
        while left:
            taken = log.take(opening.settings.max_records, opening.settings.max_bytes, PAUSE_S)
            for records in taken:
                found = snapshots.first_end(found, _earliest_end(records))
                heard = time.monotonic()
            left = {place: end for place, end in left.items() if log.positions[place] < end}
            if time.monotonic() - heard > PATIENCE_S:
                raise LogError(f"no more records of {topic} come: {log.trouble()}; check the brokers")
    finally:
        log.close()
    return found


def _earliest_end(records: Records) -> int | None:
    """Earliest arrival of a record that ends a snapshot."""
    suspects = np.flatnonzero(keys.may_end_snapshot(records.values, np.ones(len(records), dtype=np.bool_)))
    ends = [row for row in suspects.tolist() if snapshots.ends_snapshot(records.values[row].as_py())]
    return min(records.arrivals[ends].tolist(), default=None)
