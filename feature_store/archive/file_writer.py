"""The writer of one file of an archive: the same records give the same bytes, however they are batched."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feature_store.archive.layout import GROUP_BYTES, GROUP_ROWS, RECORD, cut_group, day_of, writer_options
from feature_store.archive.manifest import Kind, Span
from feature_store.archive.storage import NewFile

Decode = Callable[[pa.Table], Sequence[pa.Array]]
"""Function from n records (RECORD) to their further columns, each of n rows."""

MOST_PENDING = 256
"""Batches that wait for their row group; more are joined, because each takes some kB."""


def sizes_of(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the bytes of key and value of each record, shape (n,)."""
    key, value = (pc.fill_null(pc.binary_length(batch[name]), 0) for name in ("key", "value"))
    sizes: NDArray[np.int64] = np.asarray(key).astype(np.int64) + np.asarray(value)
    return sizes


@dataclass(frozen=True)
class FinishedFile:
    """A file that is written and on the disk, but not published."""

    span: Span
    file: NewFile | None
    """None: the span has no file."""


class FileWriter:
    """Writer of the records from one offset on."""

    def __init__(self, file: Callable[[], NewFile], first: int, schema: pa.Schema, decode: Decode) -> None:
        """Begin with no record.

        Args:
            file: creates the file; called at the first row group.
            first: first offset that the file covers.
            schema: columns, of which the first are RECORD.
            decode: computes the others.
        """
        self.first = first
        self.rows = self.raw_bytes = 0
        self._make, self._schema, self._decode = file, schema, decode
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._file: NewFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._first_ms = self._least_ms = self._most_ms = 0

    def add(self, batch: pa.RecordBatch, sizes: NDArray[np.int64]) -> None:
        """Append records (RECORD), with the bytes of key and value of each."""
        if not batch.num_rows:
            return
        arrivals = np.asarray(batch["timestamp"].cast(pa.int64()))
        if not self.rows:
            self._first_ms = self._least_ms = self._most_ms = int(arrivals[0])
        self._least_ms = min(self._least_ms, int(arrivals.min()))
        self._most_ms = max(self._most_ms, int(arrivals.max()))
        self.rows += batch.num_rows
        self.raw_bytes += int(sizes.sum())
        while batch.num_rows:
            cut = cut_group(sizes, GROUP_ROWS - self._pending_rows, GROUP_BYTES - self._pending_bytes)
            self._pending.append(batch.slice(0, cut.rows))
            self._pending_rows += cut.rows
            self._pending_bytes += int(sizes[: cut.rows].sum())
            batch, sizes = batch.slice(cut.rows), sizes[cut.rows :]
            if cut.is_full:
                self._write_group()
        if len(self._pending) > MOST_PENDING:
            self._pending = _joined(self._pending).to_batches()

    def finish(self, kind: Kind, end: int) -> FinishedFile:
        """Write the rest, and return the file, which covers the offsets to before `end`."""
        if not self.rows:
            return FinishedFile(Span(Kind.EMPTY, self.first, end), None)
        self._write_group()
        assert self._file is not None
        assert self._parquet is not None
        self._parquet.close()
        self._file.sync()
        size = self._file.file.tell()
        self._file.file.seek(0)
        span = Span(
            kind,
            self.first,
            end,
            rows=self.rows,
            bytes=size,
            raw_bytes=self.raw_bytes,
            sha256=hashlib.file_digest(self._file.file, "sha256").hexdigest(),
            day=day_of(self._first_ms),
            least_ms=self._least_ms,
            most_ms=self._most_ms,
        )
        return FinishedFile(span, self._file)

    def discard(self) -> None:
        """Delete what is written."""
        if self._parquet is not None and self._file is not None:
            self._parquet.close()
            self._file.discard()

    def _write_group(self) -> None:
        if not self._pending:
            return
        if self._parquet is None:
            self._file = self._make()
            self._parquet = pq.ParquetWriter(
                self._file.file, self._schema, **writer_options(self._schema.names)
            )
        group = _joined(self._pending)
        record = [group[name].combine_chunks() for name in RECORD.names]
        self._parquet.write_table(
            pa.table([*record, *self._decode(group)], schema=self._schema), row_group_size=self._pending_rows
        )
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, RECORD).combine_chunks()
