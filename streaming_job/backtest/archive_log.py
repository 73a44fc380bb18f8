"""The archive as a backtest reads it."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from feature_store.archive.manifest import Kind, Manifest, Span
from feature_store.archive.reader import Archive
from streaming_job.backtest.log import Extent
from streaming_job.log.records import Records, archived


class ArchiveLog:
    """See `log.ArchivedLog`; what was never archived is passed over.

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
        """See `ArchivedLog`."""
        return self._archive.partitions(self._fields[topic]) if topic in self._fields else ()

    def extents(self, topic: str) -> dict[int, Extent]:
        """See `ArchivedLog`."""
        extents = {}
        for partition in self.partitions(topic):
            manifest = self._archive.manifest(self._fields[topic], partition)
            first, spans = manifest.whole_from, self._spans(topic, manifest)
            if spans:
                times = min(span.least_ms for span in spans), max(span.most_ms for span in spans)
                extents[partition] = Extent(first, *times)
        return extents

    def compacted_before(self, topic: str) -> int | None:
        """See `ArchivedLog`."""
        parts = self.partitions(topic)
        manifests = [self._archive.manifest(self._fields[topic], partition) for partition in parts]
        return max((manifest.compacted_before_ms for manifest in manifests), default=0) or None

    def arrival(self, topic: str, partition: int, offset: int) -> int | None:
        """See `ArchivedLog`."""
        field = self._fields[topic]
        manifest = self._archive.manifest(field, partition)
        if offset >= manifest.end:
            return None
        first = max(offset, manifest.begin)
        batches = self._archive.read(field, partition, first, columns=["timestamp"], allow_lost=True)
        return next((int(np.min(batch["timestamp"].cast(pa.int64()))) for batch in batches), None)

    def has_lost(self, topic: str, since_ms: int) -> bool:
        """See `ArchivedLog`."""
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
        """See `ArchivedLog`."""
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
