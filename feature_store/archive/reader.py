"""The reader of an archive: records of a partition by offsets or by arrivals, in the order of offsets."""

from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feature_store.archive import commit
from feature_store.archive.layout import ArchiveError, Arrivals, partition_path
from feature_store.archive.manifest import Kind, Manifest, Span
from feature_store.archive.storage import Storage


class Archive:
    """An archive; an archiver may write it meanwhile."""

    def __init__(self, place: str) -> None:
        """Open an archive.

        Args:
            place: a path, or a URI as pyarrow's file systems have.

        Raises:
            ArchiveError: there is none, or it is of another format.
        """
        self.storage = Storage(place)
        self.topics = commit.names_of(self.storage)
        """Names of the topics, by field of the table of topics."""
        if not self.topics:
            raise ArchiveError(f"{place} is no archive; write one with `fraud archive run`")

    def former(self) -> "Iterator[Archive]":
        """Yield archives of the topics in whose place this one has others now, one of each topic."""
        for field, name in commit.former_of(self.storage):
            former = copy(self)
            former.topics = {field: name}
            yield former

    def partitions(self, field: str) -> list[int]:
        """Return the partitions of a topic that an archiver has begun, ascending.

        Raises:
            ArchiveError: the topic is not archived.
        """
        topic = self._name(field)
        names = [name for name in self.storage.names(topic) if name.startswith("partition=")]
        return sorted(
            int(name.partition("=")[2]) for name in names if self.storage.has_files(f"{topic}/{name}")
        )

    def manifest(self, field: str, partition: int) -> Manifest:
        """Return the manifest of a partition.

        Raises:
            ArchiveError: the partition is not archived, or its manifest is damaged.
        """
        manifest = commit.manifest_of(self.storage, self._name(field), partition)
        if manifest is None:
            raise ArchiveError(f"{self.storage.place} has no partition {partition} of {self._name(field)}")
        return manifest

    def read(
        self,
        field: str,
        partition: int,
        first: int | None = None,
        end: int | None = None,
        *,
        arrived: Arrivals | None = None,
        columns: Sequence[str] | None = None,
        allow_lost: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition, a row group at a time, in the order of offsets.

        Args:
            field: the topic, by its field of the table of topics.
            first: first offset; default: the archive's.
            end: offset before which to stop; default: the end of the archive when the call begins.
            arrived: only records that arrived then; default: all.
            columns: names of columns (`layout`); default: all.
            allow_lost: whether offsets that were never archived are passed over.

        Raises:
            ArchiveError: the archive does not hold all of these offsets, or a file is missing or damaged.
        """
        manifest = self.manifest(field, partition)
        at, end = manifest.begin if first is None else first, manifest.end if end is None else end
        if at < manifest.begin or end > manifest.end:
            raise ArchiveError(
                f"the archive has offsets {manifest.begin} to {manifest.end} of "
                f"{manifest.topic}-{partition}, not {at} to {end}; archive more, or ask for less"
            )
        while at < end:
            span = next(span for span in manifest.spans if span.end > at)
            if span.kind is Kind.LOST and not allow_lost:
                raise ArchiveError(
                    f"offsets {span.first} to {span.end} of {manifest.topic}-{partition} were deleted by "
                    "retention before they were archived; begin after them"
                )
            if span.name and (arrived is None or _overlaps(span, arrived)):
                try:
                    file = self.storage.open(f"{partition_path(manifest.topic, partition)}/{span.name}")
                except FileNotFoundError:
                    text = f"{span.name} of {manifest.topic}-{partition} is missing; restore it from a copy"
                    manifest = self._renewed(field, manifest, span, at, text)
                    continue
                try:
                    with file:
                        for batch, after in _batches(file, at, end, arrived, columns):
                            yield batch
                            at = after
                except (OSError, pa.ArrowException) as fault:
                    # of an object store also if the file is deleted while it is read
                    reason = " ".join(str(fault).split())
                    text = (
                        f"{span.name} cannot be read or is damaged ({reason}); check the storage, or restore "
                        "a copy"
                    )
                    manifest = self._renewed(field, manifest, span, at, text)
                    continue
            at = span.end

    def _renewed(self, field: str, manifest: Manifest, span: Span, at: int, text: str) -> Manifest:
        """Return the newer manifest of a partition that has another file in place of a span's.

        Args:
            at: the next offset to read.
            text: of the error if there is none.

        Raises:
            ArchiveError: the span's file still counts, or what is to be read has expired.
        """
        renewed = self.manifest(field, manifest.partition)
        if at < renewed.begin:
            raise ArchiveError(
                f"offsets {at} to {renewed.begin} of {manifest.topic}-{manifest.partition} have expired "
                "meanwhile; begin again"
            ) from None
        if span in renewed.spans:
            raise ArchiveError(text) from None
        return renewed

    def _name(self, field: str) -> str:
        if field not in self.topics:
            raise ArchiveError(f"{self.storage.place} does not have the topic `{field}`")
        return self.topics[field]


def _overlaps(span: Span, arrived: Arrivals) -> bool:
    return span.least_ms < arrived.end and span.most_ms >= arrived.first


def _batches(
    file: pa.NativeFile,
    first: int,
    end: int,
    arrived: Arrivals | None,
    columns: Sequence[str] | None,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the records of a file that are asked for, each time with the next offset to ask for.

    Raises:
        OSError, pa.ArrowException: the file cannot be read.
    """
    parquet = pq.ParquetFile(file)
    wanted = parquet.schema_arrow.names if columns is None else list(columns)
    needed = [*wanted, *({"offset", "timestamp"} - set(wanted))]
    for number in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(number).column(0).statistics
        if statistics.max < first or statistics.min >= end:
            continue
        batch = parquet.read_row_group(number, columns=needed).combine_chunks().to_batches()[0]
        offsets = np.asarray(batch["offset"])
        low, high = np.searchsorted(offsets, [first, end])
        batch = batch.slice(low, high - low)
        if arrived is not None:
            times = batch["timestamp"].cast(pa.int64())
            batch = batch.filter(pc.and_(pc.greater_equal(times, arrived.first), pc.less(times, arrived.end)))
        if batch.num_rows:
            yield batch.select(wanted), min(statistics.max + 1, end)
