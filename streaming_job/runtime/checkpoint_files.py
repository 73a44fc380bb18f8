"""How checkpoint files are written, by the kind of file system: each is there whole, or not at all."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming_job.environment import SettingsError

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_SPARKS = "org.apache.spark.sql.execution.streaming.checkpointing"
_BY_SCHEME = {
    # the default manager forks ten processes for each file of a local file system
    **dict.fromkeys(("", "file"), f"{_SPARKS}.FileSystemBasedCheckpointFileManager"),
    # they rename in one step
    **dict.fromkeys(("hdfs", "viewfs", "abfs", "abfss"), f"{_SPARKS}.FileContextBasedCheckpointFileManager"),
    # renaming copies there; an upload appears when it is complete
    "s3a": "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
}
KNOWN = ", ".join(filter(None, _BY_SCHEME))


def manager_for(checkpoint: str, given: Mapping[str, str]) -> dict[str, str]:
    """Spark's setting of what writes the files.

    Args:
        checkpoint: a path or a URI.
        given: the operator's settings of Spark, which win.

    Raises:
        SettingsError: nobody knows for this kind of file system.
    """
    scheme = urlsplit(checkpoint).scheme
    manager = given.get(MANAGER) or _BY_SCHEME.get(scheme)
    if manager is None:
        raise SettingsError(
            f"FRAUD_CHECKPOINT: no way is known to write whole files on {scheme}://; take another "
            f"place ({KNOWN}), or name the class that knows as {MANAGER} in FRAUD_SPARK"
        )
    return {MANAGER: manager}


def require(spark: SparkSession, checkpoint: str) -> None:
    """See that Spark can write there, before anything else is begun.

    Raises:
        SettingsError: a class of the file system, or the right to use it, is missing.
    """
    jvm: Any = spark._jvm
    managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    try:
        path = jvm.org.apache.hadoop.fs.Path(checkpoint)
        managers.create(path, spark._jsparkSession.sessionState().newHadoopConf()).exists(path)
    except Py4JJavaError as fault:
        words = str(fault.java_exception.toString()).splitlines()[0]
        raise SettingsError(
            f"FRAUD_CHECKPOINT: Spark cannot use {checkpoint} ({words}); give it archives and credentials "
            "of that file system in FRAUD_SPARK, or take another place"
        ) from fault
