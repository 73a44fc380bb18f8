"""The writer of a partition: cuts its records into files, by a rule that depends on the records alone."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from feature_store.archive.file_writer import Decode, FileWriter, FinishedFile, sizes_of
from feature_store.archive.layout import MOST_BYTES, cut_file, limit_of
from feature_store.archive.manifest import Kind
from feature_store.archive.storage import NewFile
from feature_store.catalogue import DAY_MS

_NO_DAY = np.iinfo(np.int64).max


class PartitionWriter:
    """Writer of the records of one partition from an offset on, in the order of offsets."""

    def __init__(self, file: Callable[[], NewFile], first: int, schema: pa.Schema, decode: Decode) -> None:
        """Begin a file.

        Args:
            first: offset at which the file begins: the end of the one before.
            schema: columns of the files, of which the first are RECORD.
            decode: computes the others.
        """
        self._file, self._schema, self._decode = file, schema, decode
        self._current = self._begin(first)
        self._day = _NO_DAY
        self.position = first
        """Next offset: beyond the records, transaction markers and aborted records seen."""

    @property
    def first(self) -> int:
        """First offset of the current file."""
        return self._current.first

    def add(self, batch: pa.RecordBatch) -> Iterator[FinishedFile]:
        """Append records (RECORD), and yield the files that end with them."""
        offsets = np.asarray(batch["offset"])
        days = np.asarray(batch["timestamp"].cast(pa.int64())) // DAY_MS
        sizes = sizes_of(batch)
        at = 0
        while at < offsets.size:
            yield from self.passed(int(offsets[at]))
            if not self._current.rows:
                self._day = int(days[at])
            cut = cut_file(
                offsets[at:], days[at:], sizes[at:], limit_of(self.first), self._day,
                MOST_BYTES - self._current.raw_bytes,
            )  # fmt: skip
            end = at + cut.rows
            self._current.add(batch.slice(at, cut.rows), sizes[at:end])
            if cut.rows:
                self.position = int(offsets[end - 1]) + 1
            at = end
            if cut.is_full:
                yield from self._end(self.position)
            elif cut.is_end:
                yield from self._end(min(int(offsets[at]), limit_of(self.first)))

    def passed(self, position: int) -> Iterator[FinishedFile]:
        """Note that there are no further records before an offset; yield the files that end by it."""
        while position >= limit_of(self.first):
            yield from self._end(limit_of(self.first))
        self.position = max(self.position, position)

    def finish(self, kind: Kind) -> FinishedFile | None:
        """Finish the current file before it is full; the writer takes no more records.

        Args:
            kind: TAIL, or FILE if the log does not go on where the file ends.

        Returns:
            None if the file has no records: where the next one begins must not depend on this call.
        """
        return self._current.finish(kind, self.position) if self._current.rows else None

    def discard(self) -> None:
        """Delete what is written of the current file."""
        self._current.discard()

    def _begin(self, first: int) -> FileWriter:
        return FileWriter(self._file, first, self._schema, self._decode)

    def _end(self, end: int) -> Iterator[FinishedFile]:
        finished = self._current.finish(Kind.FILE, end)
        self._current = self._begin(end)
        yield finished
