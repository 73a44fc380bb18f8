"""The connections of a key group to the brokers: its transactional writer, its followers, and end offsets."""

import time
from typing import Any

import numpy as np

from streaming_job.decode import keys, snapshots
from streaming_job.group import settings_in_force
from streaming_job.group.committer import GroupCommitter
from streaming_job.group.last_record import Record
from streaming_job.group.opening import Opening
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.errors import PATIENCE_S, LogUnavailableError
from streaming_job.log.follower import LogFollower
from streaming_job.log.own_partitions import OwnPartitions
from streaming_job.log.records import Offsets, Records
from streaming_job.log.table_follower import TableFollower
from streaming_job.progress.writer import GroupProgress
from streaming_job.runtime import pauses
from streaming_job.transaction.writer import GroupWriter
from streaming_job.transaction.written import GroupOutput

PAUSE_S = 0.1


class KafkaConnections:
    """See `opening.Connections`."""

    def __init__(self, opening: Opening) -> None:
        """Create the clients without writing anything.

        Args:
            opening: the group and its job.
        """
        self._opening, topics = opening, opening.rules.topics
        self._ends = EndOffsets(opening.client, (topics.transactions, *opening.rules.tables))
        own = opening.rules.key_groups.own(opening.group)
        self._writer = GroupWriter(opening.settings, opening.group, own, opening.query_id, opening.instance)
        self._followers: list[LogFollower | TableFollower] = []

    def written(self, known: Record | None = None, *, stable: bool = False) -> GroupOutput:
        """See `GroupWriter.written`."""
        return self._writer.written(known, stable=stable)

    def take_over(self, ends: Offsets, *, from_others: bool, known: Record | None) -> GroupOutput:
        """See `GroupWriter.take_over`."""
        return self._writer.take_over(ends, from_others=from_others, known=known)

    def first(self) -> Offsets:
        """Return the first offset of each partition of all inputs.

        Raises:
            LogError, LogUnavailableError: see `with_retries`.
        """
        return with_retries(self._ends.first)

    def ends(self) -> Offsets:
        """Return the last stable offset of each partition of all inputs.

        Raises:
            LogError, LogUnavailableError: see `with_retries`.
        """
        return with_retries(self._ends.last)

    def snapshot_end(self, positions: Offsets, ends: Offsets) -> int | None:
        """See `_snapshot_end`."""
        return _snapshot_end(self._opening, positions, ends)

    def transactions(self, positions: Offsets) -> OwnPartitions:
        """Follow the group's partitions of the transactions."""
        follower = OwnPartitions(
            self._opening.client, positions, self._ends, self._opening.settings.by_broker
        )
        self._followers.append(follower)
        return follower

    def tables(self, positions: Offsets) -> TableFollower:
        """Follow the tables."""
        opening, settings = self._opening, self._opening.settings
        follower = TableFollower(
            opening.client,
            opening.rules.tables,
            (opening.rules.topics.model_rollouts,),
            positions,
            settings.max_records,
            settings.max_bytes,
            settings.by_broker,
        )
        self._followers.append(follower)
        return follower

    def committer(
        self,
        written: GroupOutput,
        record: Record | None,
        starts: Offsets,
        rebuilds: int,
        notes: dict[str, Any],
    ) -> GroupCommitter:
        """Return the output, which continues after the group's last commit; see `GroupCommitter`."""
        opening, settings = self._opening, self._opening.settings
        progress = GroupProgress(
            settings.job_id,
            opening.query_id,
            opening.group,
            settings.key_groups,
            record,
            written.commit_id,
            opening.rules.computed,
            settings.merchant_delay_ms,
            notes[settings_in_force.SETTINGS],
        )
        return GroupCommitter(
            self._writer, progress, opening.rules.topics.transactions, starts, rebuilds, notes
        )

    def close(self) -> None:
        """Stop fetching, and close the producer and the other clients."""
        for client in (*self._followers, self._ends, self._writer):
            client.close()


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
            pauses.look()
            if time.monotonic() - last_read > PATIENCE_S:
                raise LogUnavailableError(
                    f"no more records of {topic} arrive: {log.trouble()}; check the brokers"
                )
    finally:
        log.close()
    return first_end


def _earliest_end(records: Records) -> int | None:
    """Return the earliest arrival of a record that ends a snapshot, ms; None without one."""
    candidates = np.flatnonzero(keys.may_end_snapshot(records.values, np.ones(len(records), dtype=np.bool_)))
    ends = [row for row in candidates.tolist() if snapshots.ends_snapshot(records.values[row].as_py())]
    return min(records.arrivals[ends].tolist(), default=None)
