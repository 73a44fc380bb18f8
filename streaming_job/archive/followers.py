"""Followers of a log that begins in an archive: what the archive has is read there, the rest from Kafka.

The seam of a partition is the offset at which its archive ends when the follower begins. Records before it
are read from the archive even if the topic has them, too: of a compacted topic it may have only some.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feature_store.archive.commit import manifest_of
from feature_store.archive.layout import ArchiveError, partition_path
from feature_store.archive.manifest import Manifest
from feature_store.archive.reader import Archive
from streaming_job.archive.topics import look_up
from streaming_job.log.follower import LogFollower, PartitionFollower
from streaming_job.log.records import Offsets, PartitionId, Records, archived, name_of
from streaming_job.settings import JobSettings

COLUMNS = ["offset", "timestamp", "key", "value"]
"""Columns of an archive that the job needs."""


class LogArchive:
    """The archived part of topics. Its methods raise ArchiveError as `manifest` does."""

    def __init__(self, archive: Archive, topic_ids: Mapping[str, str]) -> None:
        """Read archived partitions.

        Args:
            archive: it may be written meanwhile.
            topic_ids: Kafka's id of each topic.
        """
        self._archive, self._topic_ids = archive, topic_ids
        self._fields = {name: field for field, name in archive.topics.items()}

    def manifest(self, tp: PartitionId) -> Manifest | None:
        """Return the newest manifest of a partition; None if it is not archived.

        Raises:
            ArchiveError: it is damaged, or that of a topic that was deleted and created again.
        """
        topic, partition = tp
        manifest = manifest_of(self._archive.storage, topic, partition) if topic in self._fields else None
        if manifest is not None and manifest.topic_id != self._topic_ids.get(topic):
            raise ArchiveError(
                f"topic {topic} was deleted and created again since {self._archive.storage.place} began, so "
                "the archive's offsets are those of another log; use an archive of this topic, or none"
            )
        return manifest

    def first(self, first: Offsets) -> Offsets:
        """Return the offset of each partition from which on archive and topic have all records.

        Args:
            first: the first offsets of the topics.
        """
        whole = dict(first)
        for tp, offset in first.items():
            manifest = self.manifest(tp)
            if manifest is not None and manifest.end >= offset:
                whole[tp] = min(offset, manifest.whole_from)
        return whole

    def gaps(self, first: Offsets) -> Iterator[str]:
        """Yield what is in neither archive nor topic, though the archive begins before it; and missing files.

        Args:
            first: the first offsets of the topics.
        """
        for tp, offset in sorted(first.items()):
            manifest = self.manifest(tp)
            if manifest is None or not manifest.spans:
                continue
            if manifest.end < offset:
                yield f"offsets {manifest.end} to {offset} of {name_of(tp)} are in neither archive nor topic"
            for span in manifest.files(manifest.whole_from):
                name = f"{partition_path(*tp)}/{span.name}"
                size = self._archive.storage.size(name)
                # a longer file may have replaced a tail meanwhile
                if size != span.bytes and self.manifest(tp) == manifest:
                    yield f"{name} is missing" if size is None else f"{name} is not the file of the manifest"

    def follower(self, tp: PartitionId, position: int) -> "ArchivedPartition | None":
        """Return a reader of a partition from a position on; None if the archive lacks some from there on."""
        manifest = self.manifest(tp)
        if manifest is None or not manifest.whole_from <= position < manifest.end:
            return None
        field, end = self._fields[tp[0]], manifest.end
        return ArchivedPartition(
            tp, position, end, self._archive.read(field, tp[1], position, end, columns=COLUMNS)
        )


def log_archive(settings: JobSettings) -> LogArchive | None:
    """Return the archive in which a job's log begins; None: it begins with the topics.

    Raises:
        ArchiveError: there is none.
    """
    if not settings.log_archive:
        return None
    topics = look_up(settings, settings.topics)
    return LogArchive(Archive(settings.log_archive), {topic.name: topic.topic_id for topic in topics})


class ArchivedPartition:
    """The archived part of a partition, from a position on."""

    def __init__(self, tp: PartitionId, position: int, end: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Begin to read.

        Args:
            position: the first offset.
            end: the seam.
            batches: the records between them, in the order of offsets.
        """
        self.tp, self.position, self.end = tp, position, end
        self._batches, self._batch = batches, pa.RecordBatch.from_pylist([])

    def take(self, most: int, most_bytes: int, limit: int) -> pa.RecordBatch | None:
        """Return the next records, at least one; None if there are none before the limit.

        Args:
            most_bytes: limit of bytes of keys and values, which the last record may exceed.
            limit: offset before which to stop. If it is reached, the position moves to it.
        """
        limit = min(limit, self.end)
        while self.position < limit and self._batch.num_rows == 0:
            batch = next(self._batches, None)
            if batch is None:
                self.position = limit  # what is left has no records
            else:
                self._batch = batch
        if self.position >= limit:
            return None
        rows = int(np.searchsorted(np.asarray(self._batch["offset"]), limit))
        if rows == 0:
            self.position = limit
            return None
        sizes = sum(
            np.asarray(pc.fill_null(pc.binary_length(self._batch[name]), 0), dtype=np.int64)
            for name in ("key", "value")
        )
        fitting = int(np.searchsorted(np.cumsum(sizes), most_bytes)) + 1
        rows = min(rows, most, fitting)
        taken, self._batch = self._batch.slice(0, rows), self._batch.slice(rows)
        self.position = int(taken["offset"][-1].as_py()) + 1
        return taken


class ArchivedFollower:
    """A follower that reads partitions from an archive up to their seams, and from Kafka from there on."""

    def __init__(self, parts: list[ArchivedPartition], log: PartitionFollower) -> None:
        """Begin to read.

        Args:
            log: follows all partitions, these from their seams on.
        """
        self._parts, self._log = sorted(parts, key=lambda part: part.tp), log
        self._limits: Offsets | None = None
        self._turn = 0
        self._limit_log()

    @property
    def positions(self) -> Offsets:
        """See `LogFollower`."""
        return {**self._log.positions, **{part.tp: part.position for part in self._parts}}

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        """See `LogFollower`; the log is read when the archive has nothing that the limits allow."""
        taken: dict[PartitionId, pa.RecordBatch] = {}
        self._turn += 1  # each partition is the first in turn: its batch may be a whole mini-batch
        for number in range(len(self._parts)):
            part = self._parts[(self._turn + number) % len(self._parts)]
            limit = part.end if self._limits is None else self._limits.get(part.tp, part.end)
            batch = part.take(most, most_bytes, limit)
            if batch is not None:
                taken[part.tp] = batch
                most, most_bytes = (
                    most - batch.num_rows,
                    most_bytes - batch["key"].nbytes - batch["value"].nbytes,
                )
                if most <= 0 or most_bytes <= 0:
                    break
        if any(part.position >= part.end for part in self._parts):
            self._parts = [part for part in self._parts if part.position < part.end]
            self._limit_log()
        if not taken:
            return self._log.take(most, most_bytes, wait_s)
        topics: dict[str, dict[int, pa.RecordBatch]] = {}
        for (topic, partition), batch in taken.items():
            topics.setdefault(topic, {})[partition] = batch
        return [archived(topic, batches) for topic, batches in sorted(topics.items())]

    def limit(self, ends: Offsets | None) -> None:
        """See `LogFollower`."""
        self._limits = ends
        self._limit_log()

    def trouble(self) -> str:
        """See `LogFollower`."""
        return self._log.trouble()

    def close(self) -> None:
        """See `LogFollower`."""
        self._parts = []
        self._log.close()

    def _limit_log(self) -> None:
        """Let the log return nothing of partitions that are still read from the archive."""
        limits = dict(self._limits or {}) | {part.tp: part.end for part in self._parts}
        self._log.limit(limits or None)


def follow(
    archive: LogArchive | None,
    client: Mapping[str, str],
    positions: Offsets,
    by_broker: tuple[str, ...],
) -> PartitionFollower:
    """Follow partitions from positions on, which may be in the archive.

    Args:
        archive: None: all is in the topics.
        client: settings of the Kafka client.
        by_broker: topics in Kafka whose records must have timestamps set by the broker.
    """
    parts: list[ArchivedPartition] = []
    if archive is not None:
        for tp, position in positions.items():
            if (part := archive.follower(tp, position)) is not None:
                parts.append(part)
    seams = {part.tp: part.end for part in parts}
    log = LogFollower(client, {**positions, **seams}, by_broker)
    return ArchivedFollower(parts, log) if parts else log
