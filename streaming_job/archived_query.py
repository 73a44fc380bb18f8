"""Run as a program: a small query that goes the job's ways through Spark, whose classes Java archives."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from streaming_job import session
from streaming_job.class_archive import PATIENCE_S, ArchiveError
from streaming_job.keyed_stage import OUTCOME_SCHEMA, Pieces
from streaming_job.settings import JobSettings
from streaming_job.source.card_log import CardLog

BATCHES = 3


class Ticks(CardLog):
    """A few packets in each batch, as the job's source gives them."""

    @classmethod
    def name(cls) -> str:
        """As Spark's `format`."""
        return "ticks"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """One that counts."""
        return TicksReader()


class TicksReader(DataSourceStreamReader):
    """Counts batches."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """None yet."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """Always one more."""
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Two tasks."""
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A packet for each of two key groups."""
        groups = pa.array([0, 1], pa.int32())
        yield pa.RecordBatch.from_arrays([groups, pa.array([b"packet"] * 2)], ["key_group", "packet"])


class Counter(StatefulProcessor):
    """Uses state in the ways in which the job does."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """The job's variable."""
        self._pieces = Pieces(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Writes, reads, removes."""
        packets = [bytes(row.packet) for row in rows]
        self._pieces.put("new", packets[0])
        self._pieces.get("missing")
        self._pieces.remove("new")
        yield Row(key_group=key[0], outcome=bytes(len(packets)))


def run_through(spark: SparkSession, checkpoint: str) -> None:
    """A few batches of a query like the job's, twice, so that there is something to go on from."""
    spark.dataSource.register(Ticks)

    def write(outcomes: DataFrame, _: int) -> None:
        outcomes.collect()

    for _ in range(2):
        query = (
            spark.readStream.format(Ticks.name()).load()
            .groupBy("key_group")
            .transformWithState(Counter(), OUTCOME_SCHEMA, outputMode="Update", timeMode="None")
            .writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )  # fmt: skip
        while len(query.recentProgress) < BATCHES and query.isActive:
            query.awaitTermination(1)
        query.stop()
        if query.exception():
            raise ArchiveError(str(query.exception()))


def main() -> None:
    """Arguments: the archive to make, then the jars."""
    archive, *jars = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        settings = JobSettings(
            job_id="class-archive", bootstrap_servers="none", mlflow_tracking_uri="none",
            checkpoint=f"{scratch}/checkpoint", work_dir=Path(scratch), key_groups=2, ui_port=0,
            # whatever the environment says about jobs
            master="local[2]", spark={}, driver_java_options="",
        )  # fmt: skip
        # a warning for each class that cannot be in it
        making = [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=error", "-Xlog:cds+dynamic=error"]
        with session.launching(settings, [Path(jar) for jar in jars], making) as launch:
            made = launch.session()
            run_through(made, settings.checkpoint)
            made.stop()
            if launch.end(PATIENCE_S):  # it writes the archive then
                sys.exit("Java ended with an error")


if __name__ == "__main__":
    main()
