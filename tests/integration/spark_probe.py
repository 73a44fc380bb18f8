"""Run as a program with the job's settings in its environment: prints, as JSON, what Spark makes of them."""

import json
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deploy.local import jars
from streaming_job.group.placement import grouping_values
from streaming_job.runtime import session
from streaming_job.settings import JobSettings

GROUPS = (1, 2, 3, 12, 48, 200)


def main() -> None:
    settings = JobSettings()
    with session.launching(settings, jars.ensure("spark")) as launch:
        print(json.dumps(probe(settings, launch.session())))


def probe(settings: JobSettings, spark: SparkSession) -> dict[str, Any]:
    partitions = {}
    for groups in GROUPS:
        rows = spark.createDataFrame([(value,) for value in grouping_values(groups)], "key_group int")
        spread = rows.repartition(groups, "key_group").select("key_group", F.spark_partition_id())
        found = {row[0]: row[1] for row in spread.collect()}
        partitions[groups] = [found[value] for value in grouping_values(groups)]
    hadoop = spark._jsc.hadoopConfiguration()
    path = spark._jvm.org.apache.hadoop.fs.Path(f"file://{settings.checkpoint}")
    managers = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    # the context is the session's: its settings decide
    manager = managers.create(path, spark._jsparkSession.sessionState().newHadoopConf())
    return {
        "partitions": partitions,
        "file_system": path.getFileSystem(hadoop).getClass().getName(),
        "file_manager": manager.getClass().getName(),
        "listening": [
            connection.laddr.ip
            for process in psutil.Process().children(recursive=True)
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ],
        "settings": dict(spark.sparkContext.getConf().getAll()),
    }


if __name__ == "__main__":
    main()
