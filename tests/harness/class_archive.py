"""Java's archive of the classes that a job's JVM loads: it shortens the start of each job of the tests.

    python -m harness.class_archive FILE

`make test` makes it once a checkout. A JVM with another class path starts without it.
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deploy.local import jars
from streaming_job.runtime import session
from streaming_job.settings import JobSettings


def main(target: Path) -> None:
    """Run a streaming query and write the classes that it loaded."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        result = Path(scratch) / "classes"
        settings = JobSettings(
            bootstrap_servers="none",
            mlflow_tracking_uri="none",
            checkpoint=f"{scratch}/checkpoint",
            work_dir=Path(scratch) / "work",
            # no warnings about classes that cannot be archived
            driver_java_options=f"-XX:ArchiveClassesAtExit={result} -Xlog:cds=off -Xlog:cds+dynamic=off",
        )
        with session.launching(settings, jars.ensure("spark")) as launch:
            _query(launch.session(), scratch)
        result.rename(target)


def _query(spark: SparkSession, scratch: str) -> None:
    """Run a stateful query of some batches, as a job does."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    counts = rows.groupBy((F.col("value") % 2).alias("key")).count()
    query = (
        counts.writeStream.outputMode("update").format("memory").queryName("counts")
        .option("checkpointLocation", f"{scratch}/query").start()
    )  # fmt: skip
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
