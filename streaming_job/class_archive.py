"""An archive of the classes that the job's JVM loads: a start maps them instead of reading and checking them.

Spark loads thousands of classes before its first batch, which takes seconds. Java takes an archive only if it
is its own and of the same class path; one that is missing or no longer fits costs time, nothing else.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from feature_store.errors import FraudError
from streaming_job import session
from streaming_job.settings import JobSettings

BATCHES = 3
PATIENCE_S = 600


class ArchiveError(FraudError):
    """The archive cannot be made; the job runs without."""


def options(directory: Path, jars: Sequence[Path]) -> list[str]:
    """Options with which the JVM uses the archive; none if there is none.

    Args:
        directory: where archives are kept.
        jars: on the class path before Spark's.
    """
    archive = path(directory, jars)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def path(directory: Path, jars: Sequence[Path]) -> Path:
    """Where the archive of this Java and these jars is, or would be."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    spark = Path(pyspark.__file__).parent / "jars"
    digest = hashlib.sha256()
    # Java sees Spark's in the directory's own order, and looks at times in seconds
    for file in (java.resolve(), *jars, *(spark / name for name in os.listdir(spark))):
        status = file.stat() if file.exists() else None
        digest.update(f"{file} {status and (status.st_size, int(status.st_mtime))}\n".encode())
    return directory / f"classes-{digest.hexdigest()[:16]}.jsa"


def make(directory: Path, jars: Sequence[Path]) -> Path:
    """Make the archive, unless it is there; takes about a minute.

    Raises:
        ArchiveError: Java did not make it.
    """
    archive = path(directory, jars)
    if archive.exists():
        return archive
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            made = Path(scratch, archive.name)
            ended = subprocess.run(
                [sys.executable, "-m", __name__, str(made), *map(str, jars)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=PATIENCE_S,
            )  # fmt: skip
            if ended.returncode or not made.exists():
                raise ArchiveError(f"no archive of classes was made; Java said: {ended.stdout[-2000:]}")
            made.rename(archive)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise ArchiveError(f"no archive of classes was made: {fault}") from fault
    return archive


class Ticks(DataSource):
    """A few packets in each batch."""

    @classmethod
    def name(cls) -> str:
        """As Spark's `format`."""
        return "ticks"

    def schema(self) -> str:
        """As the job's."""
        return "key_group int, packet binary"

    def streamReader(self, schema: StructType) -> "TicksReader":  # noqa: N802
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
        self._pieces = handle.getMapState("pieces", "name string", "blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Writes, reads, removes."""
        packets = [bytes(row.packet) for row in rows]
        self._pieces.updateValue(("new",), (packets[0],))
        self._pieces.getValue(("missing",))
        self._pieces.removeKey(("new",))
        yield Row(outcome=bytes(len(packets)))


def run_through(spark: SparkSession, checkpoint: str) -> None:
    """A few batches of a query like the job's, twice, so that there is something to go on from."""
    spark.dataSource.register(Ticks)

    def write(outcomes: DataFrame, _: int) -> None:
        outcomes.collect()

    for _ in range(2):
        query = (
            spark.readStream.format(Ticks.name()).load()
            .groupBy("key_group")
            .transformWithState(Counter(), "outcome binary", outputMode="Update", timeMode="None")
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
            if session.end(made, PATIENCE_S):  # it writes the archive then
                sys.exit("Java ended with an error")


if __name__ == "__main__":
    main()
