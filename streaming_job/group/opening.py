"""The opening of a key group by a process: checks that state (P), output (Q) and log belong together.

Every opening makes all checks, because a log can lose records at any time. It makes them before it writes
anything, so a start that is refused does not disturb a running job.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from feature_store.state.group_state import GroupState
from feature_store.state.journal import Meta, PieceStore, seal
from streaming_job.facts.group_facts import AUTHOR
from streaming_job.group import settings_in_force
from streaming_job.group.core import GroupCore
from streaming_job.group.limited_tables import LimitedTables
from streaming_job.group.loop import Committer, Follower, Pace, Tables, Transactions
from streaming_job.group.positions import require_fit, require_output, require_same_topics
from streaming_job.group.rules import Rules
from streaming_job.group.silence import Silence
from streaming_job.group.stored_positions import positions_of, save_positions, save_topic_ids, topic_ids_of
from streaming_job.group.tables_after_schemas import TablesAfterSchemas
from streaming_job.log.errors import LogError, confirmed
from streaming_job.log.records import Arrivals, Arrived, Offsets, PartitionId
from streaming_job.log.same_records import require_same_records
from streaming_job.progress import last_record
from streaming_job.progress.last_record import COMMIT_ID, FACTS_COMMIT, LAST, Record
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.settings import JobSettings
from streaming_job.transaction.written import GroupOutput

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""Interval of the progress records of an idle group."""
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
    clock: Callable[[], float] = time.monotonic
    """Seconds; paces the loop."""
    takes_over: bool = False
    """Whether the output is still that of a predecessor (`takeover`)."""
    until: Offsets | None = None
    """Ends of all inputs up to which a draining job decides; None: the job decides without end."""

    @property
    def own_partitions(self) -> set[PartitionId]:
        """The group's partitions of the transactions."""
        topic, own = self.rules.topics.transactions, self.rules.key_groups.own(self.group)
        return {(topic, partition) for partition in own}

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that the group folds."""
        return (*self.rules.tables, *self.retired)

    @property
    def retired(self) -> tuple[str, ...]:
        """The retired topics whose records the group reports: group 0 reports all of them."""
        return self.rules.retired if self.group == 0 else ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """All topics that the group reads."""
        return (self.rules.topics.transactions, *self.tables)

    @property
    def client(self) -> dict[str, str]:
        """Settings of Kafka clients."""
        return {**self.settings.kafka, "bootstrap.servers": self.settings.bootstrap_servers}

    @property
    def pace(self) -> Pace:
        """The loop's sizes and intervals, from the settings."""
        settings = self.settings
        return Pace(
            settings.max_records,
            settings.max_bytes,
            settings.spacing_ms / 1000,
            settings.commit_interval_ms / 1000,
            HEARTBEAT_S,
        )


class EpochCommitter(Committer, Protocol):
    """A committer that counts by epoch."""

    summary: dict[str, int]
    """Counts since the last cut."""
    epoch: int
    """Number of the running epoch."""

    def begin(self) -> None:
        """Begin to count anew."""


class Connections(Protocol):
    """The group's connections to the brokers: `group.connections`, and in tests a log in memory."""

    def written(self, known: Record | None = None, *, stable: bool = False) -> GroupOutput:
        """Return what the group has written, without fencing a running writer; see `GroupWriter.written`."""

    def take_over(self, ends: Offsets, *, from_others: bool, known: Record | None) -> GroupOutput:
        """Claim the group; see `GroupWriter.take_over`."""

    def first(self) -> Offsets:
        """Return the first offset of each partition of all inputs."""

    def ends(self) -> Offsets:
        """Return the last stable offset of each partition of all inputs."""

    def arrivals(self, at: Offsets) -> Arrivals:
        """Return the arrival of the record at each offset; see `EndOffsets.arrivals`."""

    def topic_ids(self) -> dict[str, str]:
        """Return Kafka's id of each input topic."""

    def snapshot_end(self, positions: Offsets, ends: Offsets) -> int | None:
        """Return the earliest arrival between P and the ends that ends a snapshot of the profiles, ms."""

    def transactions(self, positions: Offsets) -> Transactions:
        """Follow the group's partitions of the transactions."""

    def tables(self, positions: Offsets) -> Tables:
        """Follow the tables."""

    def committer(
        self,
        written: GroupOutput,
        record: Record | None,
        starts: Offsets,
        rebuilds: int,
        notes: dict[str, Any],
    ) -> EpochCommitter:
        """Return the output, which continues after the group's last commit; see `GroupCommitter`."""

    def close(self) -> None:
        """Close all clients."""


class OpenGroup:
    """A key group that this process serves, from epoch to epoch."""

    def __init__(
        self,
        opening: Opening,
        connections: Connections,
        state: GroupState,
        meta: Meta,
        store: PieceStore,
        rebuilds: int,
    ) -> None:
        """Take the group over.

        Args:
            opening: the group and its job.
            connections: the group's connections to the brokers, which `close` closes.
            state: the group's state, as of `meta.token`.
            meta: metadata of the persisted pieces; updated in place.
            store: the persisted pieces.
            rebuilds: number of rebuilds of the working copy that this opening needed.

        Raises:
            OtherQueryError, CheckpointError: state and topics do not belong together.
            StateDamagedError: a piece of the state is missing or damaged.
            LogError: the log no longer holds what the state needs next, or ends before P or Q.
            LogUnavailableError: the log cannot be read.
            FencedError: another instance of the job has taken over.
            SinkError: several attempts to take the group over failed, the brokers do not answer, or an open
                transaction hides the group's records.
            ModelUnavailableError: a proposal has to be judged again, its models cannot be reached, and no
                other champion can decide.
        """
        self.meta, self.state, self._connections = meta, state, connections
        own_partitions, with_labels = opening.own_partitions, opening.rules.merchants is not None
        positions, snapshot_end = _checked(opening, connections, meta)
        # if this instance has served the group, any other owner is newer: the group is not taken back from it
        is_ours = meta.extra.get(INSTANCE) == opening.instance
        starts = {tp: positions[tp] for tp in own_partitions}
        written = connections.take_over(starts, from_others=not is_ours, known=_stored(meta))
        meta.extra[INSTANCE] = opening.instance
        if repeated := sum(written.offsets[tp] - positions[tp] for tp in own_partitions):
            log.warning(
                "key group %d: up to %d transactions are decided again, in silence", opening.group, repeated
            )
        record = last_record.newest(written.progress, meta.extra.get(LAST))
        if with_labels:  # an earlier process may have committed since the checks
            last_record.require_labels(record, written.commit_id)
        silent_before = {**last_record.positions(record), **written.offsets}
        settings_in_force.require_same(meta, positions, silent_before, record)
        silence = Silence(silent_before, last_record.by_home(record))
        core = GroupCore(
            opening.group, opening.rules, state, meta, store, silence, last_record.set_aside(record)
        )
        core.note_snapshot_end(snapshot_end)
        next_starts = {tp: max(offset, silent_before.get(tp, 0)) for tp, offset in positions.items()}
        meta.extra[COMMIT_ID] = written.commit_id
        meta.extra.pop(FACTS_COMMIT, None)
        self.committer = connections.committer(written, record, next_starts, rebuilds, meta.extra)
        last_written_s = record["written_at"] / 1000 if record else 0.0
        silent_s = min(max(time.time() - last_written_s, 0.0), HEARTBEAT_S)
        tables: Tables = connections.tables(
            {tp: offset for tp, offset in positions.items() if tp not in own_partitions}
        )
        if (schemas := opening.rules.topics.record_schemas) and opening.retired:
            tables = TablesAfterSchemas(tables, schemas, opening.retired)
        if opening.until is not None:
            tables = LimitedTables(tables, opening.until)
        self.follower = Follower(
            core,
            connections.transactions({tp: positions[tp] for tp in own_partitions}),
            tables,
            self.committer,
            opening.pace,
            written.offsets,
            silent_s,
            opening.clock,
            opening.until,
        )

    def close(self) -> None:
        """Stop fetching and close the producer."""
        self._connections.close()


def _checked(opening: Opening, connections: Connections, meta: Meta) -> tuple[Offsets, int | None]:
    """Check that state, output and log belong together, before another writer is fenced.

    Returns:
        P by partition of all inputs, and the answer of `Connections.snapshot_end`.
    """
    known = _stored(meta)
    written = connections.written(known)
    written.require_query(opening.query_id)
    require_output(meta.extra.get(COMMIT_ID, 0), written.commit_id, written.unknown)
    record = last_record.newest(written.progress, meta.extra.get(LAST))
    if opening.rules.merchants is not None:
        if record is None or record["commit_id"] < written.commit_id:
            # a running job may have committed between the reads of the record and of the offsets, or another
            # group's open transaction may hide the record
            stable = connections.written(known, stable=True)
            record = last_record.newest(stable.progress, meta.extra.get(LAST))
        last_record.require_labels(record, written.commit_id)
    output = {**last_record.positions(record), **written.offsets}
    positions, snapshot_end = require_log(opening, connections, meta, output, last_record.newest_read(record))
    settings_in_force.require_same(meta, positions, output, record)
    return positions, snapshot_end


def require_log(
    opening: Opening,
    connections: Connections,
    meta: Meta,
    output: Offsets | None = None,
    read: Mapping[PartitionId, Arrived] | None = None,
) -> tuple[Offsets, int | None]:
    """Check that the log holds what the state needs next, and reaches P and Q; store its topics' ids.

    Args:
        output: Q by partition; default: none is known. In a retired topic, on which no decision depends, a
            state that has not followed it continues there.
        read: the last record read of each partition before Q; default: none is known.

    Returns:
        P by partition of all inputs, and the answer of `Connections.snapshot_end`.

    Raises:
        CheckpointError, LogError: see `require_fit`, `require_same_topics` and `require_same_records`.
    """

    def fit() -> tuple[Offsets, Offsets]:
        # looked up after Q: a running writer may move Q, and ends are never before it
        first, ends = connections.first(), connections.ends()
        # partitions added to a table, or to a retired topic, since P was stored are read from their beginning
        inputs = _inputs(opening, first)
        left = {tp: end for tp, end in (output or {}).items() if tp[0] in opening.retired}
        state = {**left, **positions_of(meta)}
        if unknown := sorted({*opening.retired} - {topic for topic, _ in state}):
            raise CheckpointError(
                f"FRAUD_RETIRED_TRANSACTIONS names {', '.join(unknown)}, but this checkpoint has not taken "
                "over from a job that followed it, so it is unknown which of its records are decided; remove "
                "it there"
            )
        facts = opening.rules.topics.merchant_facts
        if AUTHOR in meta.extra and not any(topic == facts for topic, _ in state):
            raise CheckpointError(
                f"FRAUD_TOPICS__MERCHANT_FACTS={facts}, but this checkpoint continues the facts of another "
                "topic, as that of a replay to which the job was switched; correct the setting"
            )
        known = {tp: offset for tp, offset in state.items() if tp[0] in opening.inputs}
        positions: Offsets = {**inputs, **known}
        require_fit(positions, output or {}, first, ends)
        ids = connections.topic_ids()
        require_same_topics(topic_ids_of(meta), ids)
        save_topic_ids(meta, ids)
        held = {tp: record for tp, record in (read or {}).items() if tp in positions}
        require_same_records(held, connections.arrivals, opening.rules.topics.compacted)
        return positions, ends

    positions, ends = confirmed(fit)
    return positions, connections.snapshot_end(positions, ends)


def begin(opening: Opening, connections: Connections, meta: Meta, store: PieceStore) -> None:
    """Run a group's first epoch: store the log's first offsets as P, because retention may move them later.

    Raises:
        OtherQueryError: the group has written before, from another checkpoint.
        CheckpointError: the group has written before, with other settings.
        LogError: the group has written before, and the log has lost its first records.
        LogUnavailableError, SinkError: the brokers do not answer.
        SinkError: an open transaction hides the group's records.
    """
    save_topic_ids(meta, connections.topic_ids())
    first = _inputs(opening, connections.first())
    positions = {tp: offset for tp, offset in first.items() if tp[0] not in opening.retired}
    save_positions(meta, positions)
    settings_in_force.store_first(meta, opening.settings.decisive)
    if not opening.takes_over:
        _require_new(opening, connections.written(), meta, positions)
    elif cut := sorted(f"{tp[0]}-{tp[1]}@{positions[tp]}" for tp in opening.own_partitions if positions[tp]):
        log.warning(
            "key group %d: the log begins at %s, so the state lacks what came before: of cards with older "
            "transactions, features without a window (count_all, zscore_all, ratio_robust, the spikes, "
            "suspicious_count.total) will differ from the predecessor's, the others for 37 days",
            opening.group, ", ".join(cut),
        )  # fmt: skip
    seal(store, meta)


def _require_new(opening: Opening, written: GroupOutput, meta: Meta, positions: Offsets) -> None:
    """Check that a state that begins with the log will decide as the group's output, if any, says."""
    written.require_query(opening.query_id)
    # a checkpoint that lost its first epochs may begin again, as long as the log is complete
    if written.commit_id and any(positions.values()):
        raise LogError(
            f"the checkpoint is empty, but job {opening.settings.job_id} has written output before, and the "
            "log has lost its first records; restore a copy of the checkpoint, or have an empty one take "
            f"over: set FRAUD_PREDECESSOR={written.query_id}"
        )
    output = {**last_record.positions(written.progress), **written.offsets}
    settings_in_force.require_same(meta, positions, output, written.progress)


def change_settings(opening: Opening, connections: Connections, meta: Meta, store: PieceStore) -> None:
    """Run an epoch that stores other settings with the state, and decides nothing.

    If the settings were stored together with the first decisions, a crash between the first output and the
    end of the epoch would leave output of the new settings with a state of the old ones.
    """
    if opening.takes_over:  # nothing was decided aloud with the former ones
        settings_in_force.store_first(meta, opening.settings.decisive)
        seal(store, meta)
        return
    written = connections.written(_stored(meta), stable=True)
    written.require_query(opening.query_id)
    # settings taken over without Q could not be decided again with the former ones once Q is restored
    require_output(meta.extra.get(COMMIT_ID, 0), written.commit_id, written.unknown)
    record = last_record.newest(written.progress, meta.extra.get(LAST))
    output = {**last_record.positions(record), **written.offsets}
    decisive, positions = opening.settings.decisive, positions_of(meta)
    for change in settings_in_force.take_over(meta, decisive, positions, output, written.commit_id):
        log.warning("key group %d: %s, for all records after the last clean stop", opening.group, change)
    seal(store, meta)


def _stored(meta: Meta) -> Record | None:
    """Return the state's copy of the group's last progress record."""
    text = meta.extra.get(LAST)
    record: Record | None = orjson.loads(text) if text else None
    return record


def _inputs(opening: Opening, offsets: Offsets) -> Offsets:
    """Select a group's inputs: its own partitions of the transactions, and all partitions of the tables."""
    own, tables = opening.own_partitions, opening.tables
    return {tp: offset for tp, offset in offsets.items() if tp in own or tp[0] in tables}
