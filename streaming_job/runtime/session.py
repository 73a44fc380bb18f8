"""The Spark session of the job. A comment beside a setting gives its reason, unless that is obvious."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from feature_store import spark_surroundings
from feature_store.spark_surroundings import LOOPBACK
from streaming_job.environment import SettingsError
from streaming_job.runtime import checkpoint_files, temp_dir
from streaming_job.runtime.workers import PRIVATE, fork_server
from streaming_job.settings import JobSettings

_STREAMING = "spark.sql.streaming"
_ROCKSDB = f"{_STREAMING}.stateStore.rocksdb"
COLLECTOR = "-XX:+UseParallelGC"
"""Garbage collector that halts the JVM's threads while it works. That costs little, because during an epoch
they mostly wait for Python; a concurrent collector would need more cores."""
COMPILER = "-XX:TieredStopAtLevel=1"
"""Java's first compiler alone: the JVM does so little that the second one's code would not repay the
processor time that it takes from the loops."""
EXIT = "-XX:+ExitOnOutOfMemoryError"
"""Ends the driver's JVM when its heap is full: otherwise a thread dies or hangs, and the job with it."""
END_S = 30.0
"""Time that a JVM has to exit after its stdin is closed; then it is killed."""
GONE_S = 0.5
"""Time that a JVM may take to exit after its connections have broken."""


def _options(settings: JobSettings, jars: Sequence[Path], temporary: Path) -> dict[str, str]:
    class_path = ":".join(str(jar) for jar in jars)
    driver_memory = settings.spark.get("spark.driver.memory", settings.driver_memory)
    ours = (COLLECTOR, COMPILER, EXIT, f"-Djava.io.tmpdir={temporary}")
    quoted = " ".join(f'"{option}"' for option in ours)  # Spark splits them as a shell does
    options = {
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
        **checkpoint_files.manager_for(settings.checkpoint, settings.spark),
        # Hadoop's local file system forks a process for each file; java.nio needs none
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFs",
        # Hadoop sets file modes itself, regardless of the process's umask
        "spark.hadoop.fs.permissions.umask-mode": f"{PRIVATE:03o}",
    }
    if is_local(settings.master):
        # no other machine has to reach the driver
        options["spark.driver.host"] = options["spark.driver.bindAddress"] = LOOPBACK
        # else a file of HADOOP_CONF_DIR decides where the path of a checkpoint is
        options["spark.hadoop.fs.defaultFS"] = "file:///"
    if class_path:
        options["spark.driver.extraClassPath"] = class_path
        options["spark.executor.extraClassPath"] = class_path
    return options


def _describe(fault: Py4JJavaError | PySparkRuntimeError) -> str:
    if isinstance(fault, PySparkRuntimeError):
        return "the JVM exited; see its output above"
    return str(fault.java_exception.getMessage()).splitlines()[0]


def _remedy(settings: JobSettings) -> str:
    """Name everything that Spark's start depends on."""
    names = ["FRAUD_MASTER", "FRAUD_DRIVER_MEMORY", "FRAUD_DRIVER_JAVA_OPTIONS"]
    if settings.spark_conf_dir:
        names.append("spark-defaults.conf in FRAUD_SPARK_CONF_DIR")
    return f"{', '.join([*names, *spark_surroundings.used()])} or FRAUD_SPARK"


class Launch:
    """A JVM of Spark that starts in the background."""

    def __init__(self, conf: SparkConf, settings: JobSettings, launcher: ThreadPoolExecutor) -> None:
        self._conf, self._settings = conf, settings
        self._launcher = launcher
        self._gateway: Future[Any] | None = None
        self._session: SparkSession | None = None

    def begin(self) -> None:
        """Start the JVM without waiting for it."""
        self._gateway = self._launcher.submit(launch_gateway, self._conf)

    def session(self) -> SparkSession:
        """Start the JVM if `begin` was not called, wait for it, and create the session.

        Raises:
            SettingsError: Java or Spark refuses the settings, or cannot use the checkpoint's location.
        """
        if self._gateway is None:
            self.begin()
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            context = SparkContext(conf=self._conf, gateway=self._gateway.result())  # type: ignore[union-attr]
        except (Py4JJavaError, PySparkRuntimeError) as fault:
            raise SettingsError(
                f"Spark does not start: {_describe(fault)}; correct {_remedy(self._settings)}"
            ) from fault
        signal.signal(signal.SIGINT, interrupt)  # Spark's handler would cancel running jobs
        context.setLogLevel("WARN")
        session = SparkSession.builder.getOrCreate()
        checkpoint_files.require(session, self._settings.checkpoint)
        # Spark gives its first Python process ten seconds to start; a fork server that has to compile the
        # kernels, once for each host and release, takes a minute
        fork_server.wait(Path(os.environ["PYSPARK_DRIVER_PYTHON"]))
        self._session, self._warm_up = (
            session,
            threading.Thread(target=_start_workers, args=(session,), name="start-workers", daemon=True),
        )
        self._warm_up.start()
        return session

    def end(self, patience_s: float = END_S) -> int | None:
        """End the JVM, or kill it after `patience_s`; return its exit code, None if not started."""
        if self._gateway is None or self._gateway.exception() is not None:
            return None
        if self._session is not None:
            self._warm_up.join(patience_s)
            # the session was stopped before, or the JVM is gone; the exit code shows other errors
            with suppress(Exception):
                self._session.stop()
        jvm: subprocess.Popen[bytes] = self._gateway.result().proc  # noqa: TID251 - only its type
        with suppress(OSError):  # the JVM is gone
            jvm.stdin.close()  # type: ignore[union-attr]
        try:
            return jvm.wait(patience_s)
        except subprocess.TimeoutExpired:
            jvm.kill()
            return jvm.wait()


@contextmanager
def launching(settings: JobSettings, jars: Sequence[Path]) -> Iterator[Launch]:
    """Start a fork server for Spark's Python processes, and prepare the launch of a JVM.

    Args:
        settings: settings of the job.
        jars: jars on the class path of driver and executors.

    Yields:
        The launch of the JVM; at the end of the `with` block the JVM ends.
    """
    spark_surroundings.prepare(local=is_local(settings.master), conf_dir=settings.spark_conf_dir)
    os.environ.pop("SPARK_LOCAL_DIRS", None)  # it would override spark.local.dir
    # one thread for each task: the tasks share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    temporary = temp_dir.prepare(settings.work_dir.resolve())
    conf = SparkConf().setMaster(settings.master)
    conf.setAll({**_options(settings, jars, temporary), **settings.spark}.items())  # type: ignore[arg-type]
    with fork_server.running(temporary) as python, ThreadPoolExecutor(1, "launch-jvm") as launcher:
        os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
        # executors on other machines have no fork server
        os.environ["PYSPARK_PYTHON"] = str(python) if is_local(settings.master) else sys.executable
        launch = Launch(conf, settings, launcher)
        try:
            yield launch
        finally:
            launch.end()


def is_local(master: str) -> bool:
    """Return whether Spark runs in one process on this machine."""
    return master.partition("[")[0] == "local"


def driver_host(session: SparkSession) -> str:
    """Return the address at which executors reach the driver."""
    return str(session.sparkContext.getConf().get("spark.driver.host", LOOPBACK))


def is_alive(session: SparkSession) -> bool:
    """Return whether the JVM of a session still runs; waits up to GONE_S for its end."""
    jvm: Any = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        jvm.wait(GONE_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _start_workers(session: SparkSession) -> None:
    """Start the worker daemon while the query is being prepared."""
    with suppress(Exception):  # the session was stopped meanwhile
        session.sparkContext.parallelize([0], 1).map(str).count()
