"""The properties with which the job starts Spark. A comment gives a reason, unless that is obvious."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from feature_store.spark_surroundings import LOOPBACK
from streaming_job.environment import SettingsError
from streaming_job.runtime import checkpoint_files
from streaming_job.runtime.jvm import EXIT
from streaming_job.runtime.workers import PRIVATE
from streaming_job.settings import JobSettings

_STREAMING = "spark.sql.streaming"
_ROCKSDB = f"{_STREAMING}.stateStore.rocksdb"
COLLECTOR = "-XX:+UseParallelGC"
"""Garbage collector that halts the JVM's threads while it works. That costs little, because during an epoch
they mostly wait for Python; a concurrent collector would need more cores."""
COMPILER = "-XX:TieredStopAtLevel=1"
"""Java's first compiler alone: the JVM does so little that the second one's code would not repay the
processor time that it takes from the loops."""
BARE_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
"""Hadoop's local file system forks a process for each file; this one, over java.nio, needs none."""
LATE = ("spark.driver.memory", "spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
"""Properties that have no effect on a JVM that runs."""
FIXED = (
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled",
    "spark.python.daemon.module",
    f"{_STREAMING}.stateStore.providerClass",
    f"{_STREAMING}.stateStore.checkpointFormatVersion",
    f"{_STREAMING}.noDataMicroBatches.enabled",
)
"""Properties that the operator may not change: key groups' places and the checkpoint follow from them."""


def options(settings: JobSettings, jars: Sequence[Path], temporary: Path) -> dict[str, str]:
    """Return the properties by name; those of `settings.spark` override the job's own.

    Raises:
        SettingsError: `settings.spark` contradicts a property of FIXED.
    """
    class_path = ":".join(str(jar) for jar in jars)
    driver_memory = settings.spark.get("spark.driver.memory", settings.driver_memory)
    java = (COLLECTOR, COMPILER, EXIT, f"-Djava.io.tmpdir={temporary}")
    quoted = " ".join(f'"{option}"' for option in java)  # Spark splits them as a shell does
    ours = {
        "spark.app.name": settings.job_id,
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": f"{quoted} {settings.driver_java_options}",
        "spark.executor.extraJavaOptions": f"{COLLECTOR} {COMPILER}",
        "spark.local.dir": str(temporary),
        "spark.ui.enabled": str(settings.ui_port > 0).lower(),
        "spark.ui.port": str(settings.ui_port or 4040),
        "spark.ui.showConsoleProgress": "false",
        # anybody who can reach the UI could kill jobs
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.session.timeZone": "UTC",
        # one state partition per key group; the checkpoint keeps the number for ever
        "spark.sql.shuffle.partitions": str(settings.key_groups),
        # the plan is tiny and the same in every epoch: adapting or compiling it gains nothing
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        # else each task would generate the source code of its projections again, for one row
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.python.unix.domain.socket.enabled": "true",
        # a socket's path has to be short
        "spark.python.unix.domain.socket.dir": tempfile.gettempdir(),
        # workers and residents are forked with the kernels loaded; residents keep models for later tasks
        "spark.python.daemon.module": "streaming_job.runtime.workers.daemon",
        "spark.python.worker.reuse": "true",
        f"{_STREAMING}.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # an epoch uploads its changes (a changelog), not a snapshot of RocksDB
        f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
        # each version of the state has a unique name: the files of a repeated task, or of an epoch that was
        # never committed, are never mistaken for those of a later attempt
        f"{_STREAMING}.stateStore.checkpointFormatVersion": "2",
        # counting rows costs a lookup for each put
        f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
        f"{_ROCKSDB}.boundedMemoryUsage": "true",
        f"{_ROCKSDB}.maxMemoryUsageMB": "256",
        # a snapshot of RocksDB follows about ten changelogs, so a restart reads hardly more than ten
        f"{_STREAMING}.stateStore.minDeltasForSnapshot": "10",
        # otherwise Spark runs an empty epoch after each epoch
        f"{_STREAMING}.noDataMicroBatches.enabled": "false",
        **checkpoint_files.manager_for(settings.checkpoint, settings.spark, settings.predecessor_checkpoint),
        # files that are being uploaded; else they would stay in /tmp after a kill
        "spark.hadoop.fs.s3a.buffer.dir": str(temporary),
        "spark.hadoop.fs.file.impl": BARE_FILES,
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFs",
        # Hadoop sets file modes itself, regardless of the process's umask
        "spark.hadoop.fs.permissions.umask-mode": f"{PRIVATE:03o}",
    }
    if is_local(settings.master):
        # no other machine has to reach the driver
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = LOOPBACK
        # else a file of HADOOP_CONF_DIR decides where the path of a checkpoint is
        ours["spark.hadoop.fs.defaultFS"] = "file:///"
    if class_path:
        ours["spark.driver.extraClassPath"] = class_path
        ours["spark.executor.extraClassPath"] = class_path
    for name in FIXED:
        if settings.spark.get(name, ours[name]) != ours[name]:
            raise SettingsError(
                f"{name}={settings.spark[name]} would break the job, which needs {ours[name]}: remove it "
                "from Spark's properties"
            )
    return {**ours, **settings.spark}


def is_local(master: str) -> bool:
    """Return whether Spark runs in one process on this machine."""
    return master.partition("[")[0] == "local"
