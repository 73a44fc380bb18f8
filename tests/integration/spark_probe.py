"""Run as a program with the job's settings in its environment: prints, as JSON, what Spark makes of them."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deploy.local import jars
from streaming_job import class_archive, session
from streaming_job.packets import grouping_values
from streaming_job.settings import JobSettings
from streaming_job.source import card_log

GROUPS = (1, 2, 3, 12, 48, 200)


def main() -> None:
    settings = JobSettings()
    class_path = jars.ensure("spark")
    classes = Path(settings.checkpoint).with_name("classes")
    archived = class_archive.options(jars.classes_directory(), class_path)
    with session.launching(settings, class_path, [*archived, f"-Xlog:class+load:file={classes}"]) as launch:
        found = probe(settings, launch.session())
    sources = classes.read_text()
    found["archived"], found["from jars"] = sources.count("shared objects file"), sources.count(".jar\n")
    print(json.dumps(found))


def probe(settings: JobSettings, spark: SparkSession) -> dict[str, Any]:
    partitions = {}
    for groups in GROUPS:
        rows = spark.createDataFrame([(value,) for value in grouping_values(groups)], "key_group int")
        spread = rows.repartition(groups, "key_group").select("key_group", F.spark_partition_id())
        found = {row[0]: row[1] for row in spread.collect()}
        partitions[groups] = [found[value] for value in grouping_values(groups)]
    hadoop = spark._jsc.hadoopConfiguration()
    path = spark._jvm.org.apache.hadoop.fs.Path(f"file://{settings.checkpoint}")
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    managers = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    # the context is the session's: its settings decide
    manager = managers.create(path, spark._jsparkSession.sessionState().newHadoopConf())
    return {
        "partitions": partitions,
        "file_system": path.getFileSystem(hadoop).getClass().getName(),
        "file_manager": manager.getClass().getName(),
        "plan": card_log.packets(spark, settings)._jdf.queryExecution().toString(),
        "heap": {pool.getName(): pool.getUsage().getCommitted() >> 20 for pool in pools},
        "settings": dict(spark.sparkContext.getConf().getAll()),
    }


if __name__ == "__main__":
    main()
