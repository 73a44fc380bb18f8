"""The Spark session of the job; each setting that is not Spark's default has its reason beside it."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming_job import scratch
from streaming_job.settings import JobSettings

_STREAMING = "spark.sql.streaming"
_ROCKSDB = f"{_STREAMING}.stateStore.rocksdb"
GONE_S = 0.5
"""For a process whose socket is closed to have ended."""


def _options(settings: JobSettings, jars: Sequence[Path], temporary: Path) -> dict[str, str]:
    class_path = ":".join(str(jar) for jar in jars)
    # throughput collector: shorter batches than with G1 on few cores
    collector = "-XX:+UseParallelGC"
    options = {
        "spark.app.name": settings.job_id,
        "spark.driver.memory": settings.driver_memory,
        # a batch of dead letters may be large: its heap is the only limit
        "spark.driver.maxResultSize": "0",
        "spark.driver.extraJavaOptions": f'{collector} "-Djava.io.tmpdir={temporary}"',
        "spark.executor.extraJavaOptions": collector,
        "spark.local.dir": str(temporary),
        "spark.ui.enabled": str(settings.ui_port > 0).lower(),
        "spark.ui.port": str(settings.ui_port or 4040),
        "spark.ui.showConsoleProgress": "false",
        # what plans show of the source's options, in the UI and in logs: a Kafka client has many secrets
        "spark.sql.redaction.options.regex": "(?i)url|^kafka[.]",
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.session.timeZone": "UTC",
        # one state partition a key group; the checkpoint keeps the number for ever
        "spark.sql.shuffle.partitions": str(settings.key_groups),
        # the plan is tiny and the same in every batch: nothing to adapt or to compile whole
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        # a slow hash over every byte of the shuffle, to find stages that give other rows when repeated: ours
        # may be cut into other packets then, which makes no difference
        **{
            f"spark.sql.shuffle.orderIndependentChecksum.{name}": "false"
            for name in ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch")
        },
        "spark.python.unix.domain.socket.enabled": "true",
        # a socket's path has to be short
        "spark.python.unix.domain.socket.dir": tempfile.gettempdir(),
        # workers start with the kernels, and keep them and the model
        "spark.python.daemon.module": "streaming_job.worker_daemon",
        "spark.python.worker.reuse": "true",
        # only the source stage would set it, and Spark keeps workers apart whose environments differ
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        f"{_STREAMING}.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # a batch uploads its changes, not a snapshot of the database
        f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
        # counting rows costs a look-up per put
        f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
        f"{_ROCKSDB}.boundedMemoryUsage": "true",
        f"{_ROCKSDB}.maxMemoryUsageMB": "256",
        # a snapshot of RocksDB is made on the way of a batch: seldom
        f"{_STREAMING}.stateStore.minDeltasForSnapshot": "50",
        # no second, empty batch after each batch
        f"{_STREAMING}.noDataMicroBatches.enabled": "false",
        # the default manager forks ten processes for each checkpoint file
        f"{_STREAMING}.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # ... and Hadoop's local file system one; java.nio needs none
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFs",
    }
    if class_path:
        options["spark.driver.extraClassPath"] = class_path
        options["spark.executor.extraClassPath"] = class_path
    return options


def start(settings: JobSettings, jars: Sequence[Path]) -> SparkSession:
    """Start Spark for the job.

    Args:
        settings: of the job.
        jars: on the class path of driver and executors.
    """
    # one thread a task: the tasks share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(settings.master)
    options = _options(settings, jars, scratch.prepare(settings.work_dir.resolve()))
    for name, value in {**options, **settings.spark}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    threading.Thread(target=_start_workers, args=(session,), name="start-workers", daemon=True).start()
    return session


def is_alive(session: SparkSession) -> bool:
    """Whether the JVM of a session still runs; it may take a moment to be seen to have ended."""
    jvm: Any = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        jvm.wait(GONE_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _start_workers(session: SparkSession) -> None:
    """Have the worker daemon load what it loads while the query is being prepared."""
    with suppress(Exception):  # a session that is stopped meanwhile
        session.sparkContext.parallelize([0], 1).map(str).count()
