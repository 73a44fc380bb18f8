"""What a backtest reads: the records of archived topics, and which part of the log the archive has."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from feature_store.archive import commit
from feature_store.archive.manifest import Kind, Manifest, Span
from feature_store.archive.reader import Archive
from feature_store.errors import FraudError
from streaming_job.log.records import Offsets, Records, archived


class BacktestError(FraudError):
    """A backtest cannot be made: the archive, a model or a policy is missing, or the job had other settings.

    The message says what to archive or which option to give; nothing was written.
    """


@dataclass(frozen=True)
class Decided:
    """The live job's decisions, by its newest archived progress records."""

    positions: Offsets
    """Up to where they are archived: later transactions have no live alerts yet."""
    moved_at: int | None = None
    """Time, ms, at which cards have moved between partitions of the topic; 0: unknown, or they came from
    another topic; None: they have not moved. Older transactions of cards that have moved are in partitions
    that are not theirs any more, as dead letters."""
    set_aside: Mapping[int, str] = field(default_factory=dict)
    """Offset -> reason, for each rollout that it has refused: dead letters are kept for a shorter time."""


@dataclass(frozen=True)
class Extent:
    """The part of a partition that is archived."""

    first: int
    """Offset of the first record that the archive has, or could have had: 0 at the beginning of the log."""
    least_ms: int
    """Earliest arrival."""
    most_ms: int
    """Latest arrival."""


class ArchiveLog:
    """Archived topics; what was never archived is passed over.

    Transactions begin after it: `extents` tells where. Of other topics, what is before it is still known.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._archive = Archive(place)
        self._fields = {name: field for field, name in self._archive.topics.items()}

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Open the archive again in another process."""
        return ArchiveLog, (self.place,)

    def partitions(self, topic: str) -> Sequence[int]:
        """Return the archived partitions, with records or without."""
        return self._archive.partitions(self._fields[topic]) if topic in self._fields else ()

    def extents(self, topic: str) -> dict[int, Extent]:
        """Return what is archived of each partition that has records; empty if the topic is not archived."""
        extents = {}
        for partition in self.partitions(topic):
            manifest = self._archive.manifest(self._fields[topic], partition)
            first, spans = manifest.whole_from, self._spans(topic, manifest)
            if spans:
                times = min(span.least_ms for span in spans), max(span.most_ms for span in spans)
                extents[partition] = Extent(first, *times)
        return extents

    def compacted_before(self, topic: str) -> int | None:
        """Return the arrival before which compaction may have been faster than the archiver, ms."""
        parts = self.partitions(topic)
        manifests = [self._archive.manifest(self._fields[topic], partition) for partition in parts]
        return max((manifest.compacted_before_ms for manifest in manifests), default=0) or None

    def settled(self) -> dict[int, int] | None:
        """Return by partition the offset before which the outputs of all progress records are archived, too.

        None: no archiver has noted it (`commit.settle`).
        """
        return commit.settled_of(self._archive.storage)

    def arrival(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the earliest arrival among the next records at or after an offset, ms; None without one."""
        field = self._fields[topic]
        manifest = self._archive.manifest(field, partition)
        if offset >= manifest.end:
            return None
        first = max(offset, manifest.begin)
        batches = self._archive.read(field, partition, first, columns=["timestamp"], allow_lost=True)
        return next((int(np.min(batch["timestamp"].cast(pa.int64()))) for batch in batches), None)

    def has_lost(self, topic: str, since_ms: int) -> bool:
        """Return whether records may have been deleted unarchived that arrived at a time or later."""
        return any(
            span.kind is Kind.LOST and all(later.least_ms > since_ms for later in manifest.files(span.end))
            for partition in self.partitions(topic)
            for manifest in [self._archive.manifest(self._fields[topic], partition)]
            for span in manifest.spans
        )

    def _spans(self, topic: str, manifest: Manifest) -> list[Span]:
        """Return the spans with records; of the transactions, those from which on nothing is lost."""
        is_log = self._fields[topic] == "transactions"
        return list(manifest.files(manifest.whole_from if is_log else None))

    def rows(self, topic: str) -> int:
        """Return the number of records of a topic."""
        return sum(
            self._archive.manifest(self._fields[topic], partition).rows
            for partition in self.partitions(topic)
        )

    def records(
        self,
        topic: str,
        partition: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        *,
        keys: bool = True,
    ) -> Iterator[Records]:
        """Yield a partition's records in the order of offsets.

        Args:
            since_ms: records that arrived before may be left out; None: none of them is.
            until_ms: records after the last one that arrived before may be left out; None: none of them is.
            keys: whether the keys are needed; without, they may be null.
        """
        field = self._fields[topic]
        spans = self._spans(topic, self._archive.manifest(field, partition))
        inside = [
            span
            for span in spans
            if (since_ms is None or span.most_ms >= since_ms)
            and (until_ms is None or span.least_ms < until_ms)
        ]
        if not inside:
            return
        columns = ["offset", "timestamp", "value", *(["key"] if keys else [])]
        offsets = inside[0].first, inside[-1].end
        for batch in self._archive.read(field, partition, *offsets, columns=columns, allow_lost=True):
            yield archived(topic, {partition: batch})
