"""The archiver: follows all topics that decide or are decided, and writes them to the archive.

1. Read what is new, of all partitions, with headers.
2. Add it to the files of its partitions. A file that is full is published and listed (`partition`).
3. From time to time, list the newest records in tails.

The archive's own manifests are the positions: the archiver is in no consumer group, and a killed one reads
again what is not listed.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np
import pyarrow as pa

from feature_store.archive import commit
from feature_store.archive.layout import RECORD
from feature_store.archive.storage import Storage, named_faults
from streaming_job.archive.partition import PartitionArchiver
from streaming_job.archive.topics import SWITCHED, look_up, require_same, wanted
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import clients
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import Offsets, PartitionId, Records
from streaming_job.log.same_records import require_same_records
from streaming_job.schemas.ledger import FollowedSchemas

TUNING = {
    # few large fetches: they cost less processor time, and archived records may be some seconds late
    "fetch.wait.max.ms": "500",
    "fetch.min.bytes": str(1 << 20),
    "max.partition.fetch.bytes": str(1 << 20),
}
MOST_RECORDS = 50_000
MOST_BYTES = 32 << 20
PACE_S = 0.5
"""Least time between two reads that find less than a full batch."""


@dataclass(frozen=True)
class Timing:
    """Intervals of the archiver."""

    tail_s: float
    """Time after which new records are listed in tails."""
    report_s: float
    """Time between two reports."""


@dataclass(frozen=True)
class Report:
    """The state of the archiver."""

    records: int
    """Records read since the start."""
    unread: int
    """Offsets of the log that are not read yet."""
    unlisted: int
    """Offsets that are read, but that the archive does not list yet."""
    listed_until_s: float
    """The archive lists all records that had arrived by then, seconds since 1970-01-01 UTC. Before the first
    tails of an archiver: the newest arrival that it lists; of an empty archive, the archiver's start."""


def archive(
    settings: LetterSettings,
    storage: Storage,
    timing: Timing,
    stop: Event,
    report: Callable[[Report], None],
    *,
    until_now: bool,
    accept_loss: bool,
    switched: bool = False,
) -> None:
    """Archive until a stop is requested, then list everything that was read.

    Args:
        until_now: end once the archive has what the topics have now.
        accept_loss: see `PartitionArchiver`.
        switched: whether topics of a replay may take the place of the live ones (`SWITCHED`).
    """
    has_grown, records = True, 0
    with named_faults(storage.place):
        while has_grown:
            archiver = Archiver(
                settings, storage, records, accept_loss=accept_loss, replaceable=SWITCHED if switched else ()
            )
            try:
                has_grown = archiver.follow(timing, stop, report, until_now=until_now)
                archiver.write_tails(is_last=True)
                records = archiver.records
                report(archiver.report())
            finally:
                archiver.close()


class Archiver:
    """A follower of all archived topics, and the writers of their partitions."""

    def __init__(
        self, settings: LetterSettings, storage: Storage, records: int, *, accept_loss: bool,
        replaceable: Collection[str],
    ) -> None:  # fmt: skip
        """Begin where the manifests end, after the records that an earlier archiver of this run has read.

        Raises:
            LogError: a topic has lost archived records, and others have got their offsets.
        """
        topics = {topic.name: topic for topic in look_up(settings, settings.topics)}
        begins = not commit.names_of(storage)
        commit.create(storage, {topic.field: topic.name for topic in topics.values()}, replaceable)
        if begins:
            commit.settle(storage, {})
        self._storage, self._progress = storage, settings.topics.job_progress
        self._topics, self._admin = topics.values(), clients.admin(settings)
        client = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
        absent = {*wanted(settings.topics).values()} - topics.keys()
        self._ends = EndOffsets(client, tuple(topics), absent=absent)
        self._schemas = FollowedSchemas(settings, "end-offsets")
        self._writers: Mapping[PartitionId, PartitionArchiver] = {
            (name, part): PartitionArchiver(
                storage, topics[name], part, first, self._schemas.read, accept_loss=accept_loss
            )
            for (name, part), first in sorted(with_retries(self._ends.first).items())
            if name in topics
        }
        positions = {tp: writer.position for tp, writer in self._writers.items()}
        newest = {
            tp: record for tp, writer in self._writers.items() if (record := writer.newest()) is not None
        }
        compacted = {name for name, topic in topics.items() if topic.is_compacted}
        require_same_records(newest, lambda at: with_retries(partial(self._ends.arrivals, at)), compacted)
        self._log = LogFollower({**TUNING, **client}, positions, with_headers=True)
        self.records = records
        """Records read since the start of the run."""
        self._mark = self._look()
        newest_ms = max(writer.newest_arrival_ms for writer in self._writers.values())
        self._listed_until_s = newest_ms / 1000 if newest_ms else self._mark[0]

    def follow(
        self, timing: Timing, stop: Event, report: Callable[[Report], None], *, until_now: bool
    ) -> bool:
        """Archive until a stop, or until now; return whether there is a new topic, or partition of one.

        Raises:
            ArchiveTopicError: a topic was deleted and created again meanwhile.
        """
        ends = self._mark[1]
        listed = reported = time.monotonic()
        while not stop.is_set():
            began = time.monotonic()
            is_full = self._step() >= MOST_RECORDS
            if until_now and all(self._log.positions.get(tp, 0) >= end for tp, end in ends.items()):
                return False
            now = time.monotonic()
            if now - listed >= timing.tail_s:
                self.write_tails(is_last=False)
                listed = now
            if now - reported >= timing.report_s:
                report(self.report())
                reported = now
                require_same(self._admin, self._topics, self._storage.place)
                if with_retries(self._ends.last).keys() - self._writers.keys():
                    return True
            if not is_full and not until_now:
                stop.wait(max(0.0, began + PACE_S - time.monotonic()))
        return False

    def write_tails(self, *, is_last: bool) -> None:
        """List all records that were read; see `PartitionArchiver.write_tail`."""
        for writer in self._writers.values():
            writer.write_tail(is_last=is_last)
        arrived_s, ends = self._mark
        if all(self._log.positions.get(tp, 0) >= end for tp, end in ends.items()):
            self._listed_until_s = arrived_s
            progress = {part: end for (topic, part), end in ends.items() if topic == self._progress}
            commit.settle(self._storage, progress)
            self._mark = self._look()

    def report(self) -> Report:
        """Return how far the archive is."""
        ends = with_retries(partial(self._ends.last, None))
        positions = self._log.positions
        return Report(
            self.records,
            sum(max(0, end - positions.get(tp, 0)) for tp, end in ends.items()),
            sum(max(0, positions[tp] - writer.end) for tp, writer in self._writers.items()),
            self._listed_until_s,
        )

    def close(self) -> None:
        """Stop reading, and delete what is written but not listed."""
        for writer in self._writers.values():
            writer.discard()
        self._log.close()
        self._ends.close()
        self._schemas.close()

    def _look(self) -> tuple[float, Offsets]:
        """Return the time, and the ends that the topics have after it.

        The ends of the progress come first: what its Kafka transactions have written is before the others.
        """
        now, progress = time.time(), with_retries(partial(self._ends.last, [self._progress]))
        return now, {**with_retries(self._ends.last), **progress}

    def _step(self) -> int:
        """Archive what is new; return the number of records."""
        read = dict(by_partition(self._log.take(MOST_RECORDS, MOST_BYTES, PACE_S)))
        for tp, position in self._log.positions.items():
            self._writers[tp].add(read.get(tp), position)
        count: int = sum(batch.num_rows for batch in read.values())
        self.records += count
        return count


def by_partition(topics: Iterable[Records]) -> Iterator[tuple[PartitionId, pa.RecordBatch]]:
    """Yield the records of each partition in the columns of an archive (RECORD)."""
    for records in topics:
        for partition in np.unique(records.partitions).tolist():
            rows = np.flatnonzero(records.partitions == partition)
            yield (records.topic, partition), _batch(records.take(rows))


def _batch(records: Records) -> pa.RecordBatch:
    arrays = [
        pa.array(records.offsets),
        pa.array(records.arrivals).cast(RECORD.field("timestamp").type),
        records.keys,
        records.values,
        records.headers,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD)
