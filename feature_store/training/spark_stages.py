"""Stages of a training set on Spark, picklable: each maps record batches to record batches.

The last stage (`OfCards`, or `OfMerchants` with merchant label features) runs inside `FileStage`, which
writes one file per partition and yields only numbers of rows.

Between two stages Spark sends rows to the partition of their card, or of their merchant, and sorts them there
by arrival.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from feature_store.kernels.feature_kernel import N_FEATURES
from feature_store.layout import TRANSACTION
from feature_store.merchants.facts import merchant_hash
from feature_store.training.merchant_payments import Payments, with_merchants
from feature_store.training.training_files import Rows, TrainingFile
from feature_store.training.training_run import Task
from feature_store.training.training_set import CHUNK, Decisions
from feature_store.training.transaction_files import Piece, read

SENT_DDL = (
    "card long, arrival long, row long, record binary, transaction_id string, card_id string, label tinyint"
)
DECIDED_DDL = f"merchant long, {SENT_DDL}, outcome tinyint, features binary"
DONE_DDL = "outcome string, rows long, frauds long"
"""Columns between stages, and of the last stage's result."""


@dataclass(frozen=True)
class ReadStage:
    """First stage: reads row groups of the parquet files and yields their rows."""

    task: Task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the row groups (`Piece`) that the batches name."""
        for batch in batches:
            for fields in batch.to_pylist():
                for first_row, table in read(Piece(**fields), CHUNK // 2):
                    yield _send(Rows.of(table, first_row, self.task.labels))


def _send(rows: Rows, **more: pa.Array) -> pa.RecordBatch:
    """Return `rows` as a record batch with the columns of SENT_DDL, followed by the columns `more`."""
    records = rows.records
    columns = {
        "card": pa.array(records["hi"].view(np.int64)),
        "arrival": pa.array(np.ascontiguousarray(records["arrival"])),
        "row": pa.array(np.ascontiguousarray(records["offset"])),
        "record": _packed(records),
        "transaction_id": rows.transaction_id,
        "card_id": rows.card_id,
        "label": pa.nulls(len(rows), pa.int8()) if rows.label is None else pa.array(rows.label),
    }
    return pa.record_batch(columns | more)


def _packed(rows: NDArray[Any]) -> pa.Array:
    """Return the rows of a C-contiguous array as a binary column: the bytes of each row."""
    size = rows.strides[0]
    ends = pa.py_buffer(np.arange(0, (len(rows) + 1) * size, size, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, ends, pa.py_buffer(rows)])


def _unpacked(column: pa.Array, dtype: np.dtype[Any], width: int = 1) -> NDArray[Any]:
    """Invert `_packed`: return `width` values of type `dtype` for each row, shape (n * width,)."""
    _, ends, data = column.buffers()
    first = np.frombuffer(ends, dtype=np.int32)[column.offset] if len(column) else 0
    return np.frombuffer(data, dtype=dtype, count=len(column) * width, offset=int(first))


def _receive(batch: pa.RecordBatch, *, labelled: bool) -> Rows:
    records = _unpacked(batch["record"], TRANSACTION)
    label = np.asarray(batch["label"]).astype(np.int8) if labelled else None
    return Rows(records, batch["transaction_id"], batch["card_id"], label)


@dataclass(frozen=True)
class OfCards:
    """Second stage: computes the card features of a partition's rows, which are sorted by arrival."""

    task: Task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows with outcomes and card features."""
        for rows, decisions in self.decide(batches):
            merchant = merchant_hash(rows.records["merchant"]).view(np.int64)
            yield _send(
                rows,
                merchant=pa.array(merchant),
                outcome=pa.array(decisions.outcome),
                features=_packed(np.ascontiguousarray(decisions.features)),
            ).select([field.split()[0] for field in DECIDED_DDL.split(", ")])

    def decide(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Rows, Decisions]]:
        """Yield all rows with outcomes and features."""
        point_in_time = self.task.point_in_time()
        for batch in (batch for batch in batches if batch.num_rows):
            rows = _receive(batch, labelled=self.task.labelled)
            yield rows, point_in_time.features(rows.records)


@dataclass(frozen=True)
class OfMerchants:
    """Third stage: computes the merchant label features of a partition's rows, which are sorted by arrival.

    Features as of an arrival depend on earlier arrivals only, so the facts of the batches so far suffice.
    """

    task: Task

    def decide(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Rows, Decisions]]:
        """Yield all rows with outcomes and features."""
        merchants = self.task.merchants
        assert merchants is not None
        payments = Payments(merchants.reports)
        for batch in (batch for batch in batches if batch.num_rows):
            rows = _receive(batch, labelled=self.task.labelled)
            features = _unpacked(batch["features"], np.dtype(np.float64), N_FEATURES)
            decisions = Decisions(features.reshape(-1, N_FEATURES), np.asarray(batch["outcome"]))
            payments.add(rows, decisions)
            facts = payments.facts(self.task.lateness_ms)
            yield rows, with_merchants(facts, rows.records, decisions, merchants.delay_ms)


@dataclass(frozen=True)
class FileStage:
    """Runs the last stage, `stage`, on a partition, and writes rows and features into one file."""

    stage: OfCards | OfMerchants
    directory: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the file and yield the numbers of rows by outcome."""
        context = TaskContext.get()
        assert context is not None
        path = Path(self.directory) / f"part-{context.partitionId():05d}.parquet"
        # each attempt writes its own file: a lost task and its retry never mix
        attempt = path.with_suffix(f".{context.taskAttemptId()}")
        file: TrainingFile | None = None
        for rows, decisions in self.stage.decide(batches):
            file = file or self.stage.task.file(attempt)
            file.write(rows, decisions)
        if file is None:
            return
        file.close()
        attempt.replace(path)
        names, counts = zip(*file.outcomes.items(), strict=True)
        frauds = [file.frauds, *[0] * (len(names) - 1)]
        yield pa.record_batch(
            {
                "outcome": pa.array(names),
                "rows": pa.array(counts, pa.int64()),
                "frauds": pa.array(frauds, pa.int64()),
            }
        )
