"""Training sets of large inputs on Spark: the same code, with the cards distributed over partitions.

Tasks of the first stage read row groups of the parquet files as the in-process run does, not through Spark's
reader, and send each record to the partition of its card. There the records are sorted by arrival and go
through the same kernels. A card is in one partition only and cards are independent, so the features are the
same bits with any partitioning.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from feature_store.errors import FraudError
from feature_store.layout import TRANSACTION
from feature_store.training_files import Rows, TrainingFile
from feature_store.training_run import Summary, Task, replacing
from feature_store.training_set import CHUNK
from feature_store.transaction_files import Piece, read
from feature_store.transaction_table import TrainingSetError

ROWS_PER_PARTITION = 2_000_000
"""Rows per partition. Spark sorts a partition's records (72 bytes a row, and the ids) in memory, or spills
them."""
POLL_S = 0.5

_SENT = pa.schema(
    [
        ("card", pa.int64()),
        ("arrival", pa.int64()),
        ("row", pa.int64()),
        ("record", pa.binary()),
        ("transaction_id", pa.string()),
        ("card_id", pa.string()),
        ("label", pa.int8()),
    ]
)
_SENT_DDL = (
    "card long, arrival long, row long, record binary, transaction_id string, card_id string, label tinyint"
)
_DONE_DDL = "outcome string, rows long"


class SparkRunError(FraudError):
    """Spark did not start, or the run failed."""


@dataclass(frozen=True)
class _ReadStage:
    """First stage: reads pieces of the files and yields records; picklable."""

    task: Task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for fields in batch.to_pylist():
                for first_row, table in read(Piece(**fields), CHUNK // 2):
                    yield _send(Rows.of(table, first_row, self.task.labels))


def _send(rows: Rows) -> pa.RecordBatch:
    records = rows.records
    size = TRANSACTION.itemsize
    ends = pa.py_buffer(np.arange(0, (len(rows) + 1) * size, size, dtype=np.int32))
    packed = pa.Array.from_buffers(pa.binary(), len(rows), [None, ends, pa.py_buffer(records)])
    return pa.record_batch(
        [
            pa.array(records["hi"].view(np.int64)),
            pa.array(np.ascontiguousarray(records["arrival"])),
            pa.array(np.ascontiguousarray(records["offset"])),
            packed,
            rows.transaction_id,
            rows.card_id,
            pa.nulls(len(rows), pa.int8()) if rows.label is None else pa.array(rows.label),
        ],
        schema=_SENT,
    )


def _receive(batch: pa.RecordBatch, *, labelled: bool) -> Rows:
    _, ends, data = batch["record"].buffers()
    first = np.frombuffer(ends, dtype=np.int32)[batch["record"].offset] if batch.num_rows else 0
    records = np.frombuffer(data, dtype=TRANSACTION, count=batch.num_rows, offset=int(first))
    label = np.asarray(batch["label"]).astype(np.int8) if labelled else None
    return Rows(records, batch["transaction_id"], batch["card_id"], label)


@dataclass(frozen=True)
class _ComputeStage:
    """Second stage: writes the features of a partition's sorted records into one file; picklable."""

    task: Task
    directory: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        path = Path(self.directory) / f"part-{context.partitionId():05d}.parquet"
        # each attempt writes its own file: a lost task and its retry never mix
        attempt = path.with_suffix(f".{context.taskAttemptId()}")
        file: TrainingFile | None = None
        point_in_time = self.task.point_in_time()
        for batch in batches:
            if not batch.num_rows:
                continue
            file = file or TrainingFile(attempt, labelled=self.task.labelled)
            rows = _receive(batch, labelled=self.task.labelled)
            file.write(rows, point_in_time.features(rows.records))
        if file is None:
            return
        file.close()
        attempt.replace(path)
        names, counts = zip(*file.outcomes.items(), strict=True)
        yield pa.record_batch({"outcome": pa.array(names), "rows": pa.array(counts, pa.int64())})


def compute(
    task: Task, output: Path, master: str, progress: Callable[[int, int], None] = lambda done, total: None
) -> Summary:
    """Write the training set as a directory of parquet files, one per partition, each in order of arrival.

    The input files and the output must have the same paths on every executor.

    Args:
        task: what to compute.
        output: the directory; it is created completely or not at all.
        master: Spark master.
        progress: called with the number of Spark tasks that are done, and of all tasks.

    Raises:
        TrainingSetError, LabelError: as for the in-process run.
        OutputError: the files cannot be written.
    """
    pieces = task.transactions.pieces
    with _session(master) as spark, replacing(output) as part:
        part.mkdir()
        cores = spark.sparkContext.defaultParallelism
        partitions = max(cores, -(-task.transactions.rows // ROWS_PER_PARTITION))
        fields = [(piece.path, piece.row_group, piece.first_row, piece.rows) for piece in pieces]
        units = spark.sparkContext.parallelize(fields, len(fields))
        done = (
            units.toDF("path string, row_group int, first_row long, rows long")
            .mapInArrow(_ReadStage(task), _SENT_DDL)
            .repartition(partitions, "card")
            .sortWithinPartitions("arrival", "row")
            .mapInArrow(_ComputeStage(task, str(part)), _DONE_DDL)
        )
        counts: Counter[str] = Counter()
        with _report_progress(spark, progress), _task_errors():
            for row in done.collect():
                counts[row["outcome"]] += row["rows"]
        for leftover in part.glob("part-*.[0-9]*"):
            leftover.unlink()  # files of abandoned attempts
    return Summary(counts)


@contextmanager
def _task_errors() -> Iterator[None]:
    """Convert a task's failure into the error that the task raised, without Spark's traceback."""
    try:
        yield
    except PySparkException as error:
        for line in str(error).splitlines():
            name, colon, message = line.strip().partition("Error: ")
            if colon and name.startswith("feature_store."):
                raise TrainingSetError(message) from error
        raise SparkRunError(f"Spark failed ({str(error).splitlines()[0]}); see its log above") from error


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(master)
        .appName("card-fraud features")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        # the number of partitions is chosen by the kernels' memory: Spark must not change it
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(CHUNK))
    )
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise SparkRunError(
            f"Spark does not start ({str(error).splitlines()[0]}); is Java 17 there?"
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _report_progress(spark: SparkSession, progress: Callable[[int, int], None]) -> Iterator[None]:
    """Report the numbers of finished and of all tasks while the block runs."""
    ended = Event()

    def poll() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(POLL_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
            stage_infos = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            stages = [stage for stage in stage_infos if stage]
            progress(sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages))

    thread = Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
