"""The connections of a key group to the brokers: its transactional writer, its followers, and end offsets."""

import time
from collections.abc import Callable
from typing import Any

from streaming_job.archive.followers import follow, log_archive
from streaming_job.decode import snapshots
from streaming_job.group import settings_in_force
from streaming_job.group.committer import GroupCommitter
from streaming_job.group.opening import Opening
from streaming_job.log import clients, topic_reader
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.errors import PATIENCE_S, LogUnavailableError
from streaming_job.log.follower import PartitionFollower
from streaming_job.log.own_partitions import OwnPartitions
from streaming_job.log.records import Arrivals, Offsets
from streaming_job.log.table_follower import TableFollower
from streaming_job.progress.last_record import Record
from streaming_job.progress.writer import GroupProgress
from streaming_job.runtime import pauses
from streaming_job.transaction.writer import GroupWriter
from streaming_job.transaction.written import GroupOutput

PAUSE_S = 0.1


class KafkaConnections:
    """See `opening.Connections`."""

    def __init__(self, opening: Opening) -> None:
        """Create the clients without writing anything."""
        self._opening = opening
        self._archive = log_archive(opening.settings)
        self._ends = EndOffsets(opening.client, opening.inputs)
        own = opening.rules.key_groups.own(opening.group)
        self._writer = GroupWriter(opening.settings, opening.group, own, opening.query_id, opening.instance)
        self._followers: list[OwnPartitions | TableFollower] = []

    def written(self, known: Record | None = None, *, stable: bool = False) -> GroupOutput:
        """See `GroupWriter.written`."""
        return self._writer.written(known, stable=stable)

    def take_over(self, ends: Offsets, *, from_others: bool, known: Record | None) -> GroupOutput:
        """See `GroupWriter.take_over`."""
        return self._writer.take_over(ends, from_others=from_others, known=known)

    def first(self) -> Offsets:
        """Return the first offset of each partition of all inputs, in the archive if the log begins there."""
        first = with_retries(self._ends.first)
        return first if self._archive is None else self._archive.first(first)

    def ends(self) -> Offsets:
        """Return the last stable offset of each partition of all inputs."""
        return with_retries(self._ends.last)

    def arrivals(self, at: Offsets) -> Arrivals:
        """Return the arrival of the record at each offset; see `EndOffsets.arrivals`."""
        return with_retries(lambda: self._ends.arrivals(at))

    def topic_ids(self) -> dict[str, str]:
        """Return Kafka's id of each input topic."""
        admin, inputs = clients.admin(self._opening.settings), self._opening.inputs
        return with_retries(
            lambda: {topic: answer() for topic, answer in topic_reader.topic_ids(admin, inputs).items()}
        )

    def snapshot_end(self, positions: Offsets, ends: Offsets) -> int | None:
        """See `_snapshot_end`."""
        return _snapshot_end(self._opening, self._follow, positions, ends)

    def transactions(self, positions: Offsets) -> OwnPartitions:
        """Follow the group's partitions of the transactions."""
        follower = OwnPartitions(self._follow(positions), self._ends)
        self._followers.append(follower)
        return follower

    def tables(self, positions: Offsets) -> TableFollower:
        """Follow the tables."""
        opening, settings = self._opening, self._opening.settings
        follower = TableFollower(
            opening.client,
            opening.tables,
            tuple(filter(None, (opening.rules.topics.model_rollouts, opening.rules.topics.record_schemas))),
            positions,
            settings.max_records,
            settings.max_bytes,
            self._follow,
            () if opening.rules.merchants is None else (opening.rules.topics.merchant_facts,),
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
            opening.rules.fixed,
            notes[settings_in_force.SETTINGS],
        )
        return GroupCommitter(
            self._writer, progress, opening.rules.topics.transactions, starts, rebuilds, notes
        )

    def close(self) -> None:
        """Stop fetching, and close the producer and the other clients."""
        for client in (*self._followers, self._ends, self._writer):
            client.close()

    def _follow(self, positions: Offsets) -> PartitionFollower:
        return follow(self._archive, self._opening.client, positions, self._opening.settings.by_broker)


def _snapshot_end(
    opening: Opening, begin: Callable[[Offsets], PartitionFollower], positions: Offsets, ends: Offsets
) -> int | None:
    """Read the profiles ahead from P to their ends, and return the earliest arrival that ends a snapshot.

    Otherwise a partition with rows of a later snapshot might be folded before the partition that holds the
    last row of the first snapshot, and those rows would count as rows of the first (see `decode.snapshots`).

    Args:
        begin: begins to follow partitions.

    Returns:
        Arrival, ms, of a snapshot's last row; None if there is none from P on. If P is beyond the first
        snapshot, the row is a later snapshot's; the core then keeps the earlier arrival from the state.
    """
    topic = opening.rules.topics.profiles
    remaining = {tp: end for tp, end in ends.items() if tp[0] == topic and positions[tp] < end}
    log = begin({tp: positions[tp] for tp in remaining})
    first_end, last_read = None, time.monotonic()
    try:
        while remaining:
            batches = log.take(opening.settings.max_records, opening.settings.max_bytes, PAUSE_S)
            for records in batches:
                first_end = snapshots.first_end(first_end, snapshots.earliest_end(records))
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
