"""Training sets of large inputs on Spark: the in-process code, with the cards distributed over partitions.

Tasks of the first stage read row groups of the parquet files as the in-process run does, not through Spark's
reader, and send each record to the partition of its card. There the records are sorted by arrival and go
through the same kernels. A card is in one partition only and cards are independent, so the features are the
same bits with any partitioning. With merchant label features the rows then go to the partition of their
merchant, in the same way.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from feature_store.output_files import replacing
from feature_store.spark_surroundings import SparkRunError, start
from feature_store.training.columns import TrainingSetError
from feature_store.training.spark_stages import (
    DECIDED_DDL,
    DONE_DDL,
    SENT_DDL,
    FileStage,
    OfCards,
    OfMerchants,
    ReadStage,
)
from feature_store.training.training_run import Summary, Task
from feature_store.training.training_set import CHUNK

ROWS_PER_PARTITION = 2_000_000
"""Upper limit of the mean number of rows per partition. Spark sorts a partition's rows in memory, or spills
them. A row takes 72 bytes and its ids; before the merchants' stage also 8 bytes for each card feature."""
POLL_S = 0.5


def compute(
    task: Task, output: Path, master: str, progress: Callable[[int, int], None] = lambda done, total: None
) -> Summary:
    """Write the training set as a directory of parquet files, each in order of arrival.

    There is one file for each partition that has rows. The input files and the output must have the same
    paths on every executor.

    Args:
        output: the directory; it is created completely or not at all.
        progress: called with the number of Spark tasks that are done, and of all tasks.

    Raises:
        TrainingSetError: the input or the labels break the contract. (A run in one process raises LabelError
            for labels, and HandbookError for handbook files.)
        SparkRunError: Spark did not start, or the run failed, for example because a task cannot write its
            file.
    """
    pieces = task.transactions.pieces
    with _session(master) as spark, replacing(output) as part:
        part.mkdir()
        cores = spark.sparkContext.defaultParallelism
        partitions = max(cores, -(-task.transactions.rows // ROWS_PER_PARTITION))
        fields = [(piece.path, piece.row_group, piece.first_row, piece.rows) for piece in pieces]
        units = spark.sparkContext.parallelize(fields, len(fields))
        of_cards = OfCards(task)
        last_stage: OfCards | OfMerchants = of_cards
        rows = (
            units.toDF("path string, row_group int, first_row long, rows long")
            .mapInArrow(ReadStage(task), SENT_DDL)
            .repartition(partitions, "card")
            .sortWithinPartitions("arrival", "row")
        )
        if task.merchants is not None:
            rows = (
                rows.mapInArrow(of_cards, DECIDED_DDL)
                .repartition(partitions, "merchant")
                .sortWithinPartitions("arrival", "row")
            )
            last_stage = OfMerchants(task)
        done = rows.mapInArrow(FileStage(last_stage, str(part)), DONE_DDL)
        counts: Counter[str] = Counter()
        frauds = 0
        with _report_progress(spark, progress), _task_errors():
            for row in done.collect():
                counts[row["outcome"]] += row["rows"]
                frauds += row["frauds"]
        for leftover in part.glob("part-*.[0-9]*"):
            leftover.unlink()  # files of abandoned attempts
    return Summary(counts, frauds)


@contextmanager
def _task_errors() -> Iterator[None]:
    """Convert a failure in Spark into an error of this package, without Spark's traceback.

    Raises:
        TrainingSetError: a task raised an error of this package; the message is the task's.
        SparkRunError: Spark failed otherwise.
    """
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
    spark = start(
        master,
        "card-fraud features",
        {
            # `compute` chooses the partitions, so that each fits into memory: Spark must not change them
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNK),
        },
    )
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
