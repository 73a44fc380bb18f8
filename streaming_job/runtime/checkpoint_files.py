"""The choice of Spark's checkpoint file manager by file system, so that files are written atomically."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming_job.environment import SettingsError

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_SPARKS = "org.apache.spark.sql.execution.streaming.checkpointing"
_ANYWHERE = f"{_SPARKS}.FileSystemBasedCheckpointFileManager"
"""Writes and renames on any file system. On S3 a rename is a copy of the object, which appears complete, but
takes more requests."""
_BY_SCHEME = {
    # the default manager forks ten processes for each file of a local file system
    **dict.fromkeys(("", "file"), _ANYWHERE),
    # these file systems rename atomically
    **dict.fromkeys(("hdfs", "viewfs", "abfs", "abfss"), f"{_SPARKS}.FileContextBasedCheckpointFileManager"),
    # S3 renames by copying; an upload becomes visible only when it is complete
    "s3a": "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
}
KNOWN = ", ".join(filter(None, _BY_SCHEME))


def manager_for(checkpoint: str, given: Mapping[str, str], predecessor: str = "") -> dict[str, str]:
    """Return Spark's setting of the checkpoint file manager, one for all file systems of a session.

    Args:
        checkpoint: a path or a URI.
        given: the operator's settings of Spark, which take precedence.
        predecessor: the predecessor's checkpoint, which Spark reads at a takeover; empty: none.

    Raises:
        SettingsError: no manager is known for this kind of file system.
    """
    scheme = urlsplit(checkpoint).scheme
    manager = given.get(MANAGER) or _BY_SCHEME.get(scheme)
    if manager is None:
        raise SettingsError(
            f"FRAUD_CHECKPOINT: no file manager is known that writes atomically to {scheme}://; use another "
            f"file system ({KNOWN}), or set the class as {MANAGER} in FRAUD_SPARK"
        )
    if MANAGER not in given and predecessor and _BY_SCHEME.get(urlsplit(predecessor).scheme) != manager:
        manager = _ANYWHERE
    return {MANAGER: manager}


def require(spark: SparkSession, checkpoint: str, variable: str = "FRAUD_CHECKPOINT") -> None:
    """Check that Spark can use the checkpoint's file system, before anything else is started.

    Args:
        variable: that names the checkpoint.

    Raises:
        SettingsError: it cannot, for example because a class or a permission is missing.
    """
    jvm: Any = spark._jvm
    managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    try:
        path = jvm.org.apache.hadoop.fs.Path(checkpoint)
        managers.create(path, spark._jsparkSession.sessionState().newHadoopConf()).exists(path)
    except Py4JJavaError as fault:
        error_text = str(fault.java_exception.toString()).splitlines()[0]
        raise SettingsError(
            f"{variable}: Spark cannot use {checkpoint} ({error_text}); give Spark the jars and "
            "credentials of that file system in FRAUD_SPARK, or use another location"
        ) from fault
