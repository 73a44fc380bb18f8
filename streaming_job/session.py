"""The Spark session of the job; each setting that is not Spark's default has its reason beside it."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streaming_job import scratch
from streaming_job.settings import JobSettings
from streaming_job.workers import fork_server

_STREAMING = "spark.sql.streaming"
_ROCKSDB = f"{_STREAMING}.stateStore.rocksdb"
END_S = 30.0
"""For a JVM whose stdin is closed to end before it is killed."""
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
        "spark.python.daemon.module": "streaming_job.workers.daemon",
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


@contextmanager
def launched(settings: JobSettings, jars: Sequence[Path]) -> Iterator[Callable[[], SparkSession]]:
    """Have the JVM and the Python that its processes are forked from start while the caller goes on.

    Args:
        settings: of the job.
        jars: on the class path of driver and executors.

    Yields:
        What waits for the JVM and makes the session. At the end the JVM is stopped, used or not.
    """
    # one thread a task: the tasks share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    temporary = scratch.prepare(settings.work_dir.resolve())
    conf = SparkConf().setMaster(settings.master)
    conf.setAll({**_options(settings, jars, temporary), **settings.spark}.items())  # type: ignore[arg-type]
    with fork_server.running(temporary) as python, ThreadPoolExecutor(1, "launch-jvm") as launcher:
        os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
        # executors elsewhere have no fork server
        local = settings.master.partition("[")[0] == "local"
        os.environ["PYSPARK_PYTHON"] = str(python) if local else sys.executable
        gateway = launcher.submit(launch_gateway, conf)
        try:
            yield lambda: _session(conf, gateway.result())
        finally:
            if gateway.exception() is None:
                _end(gateway.result().proc)


def _end(jvm: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):  # of one that is gone
        jvm.stdin.close()  # type: ignore[union-attr]
    try:
        jvm.wait(END_S)
    except subprocess.TimeoutExpired:
        jvm.kill()


def _session(conf: SparkConf, gateway: Any) -> SparkSession:
    context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("WARN")
    session = SparkSession.builder.getOrCreate()
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
