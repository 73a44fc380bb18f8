"""The Spark session of the job, and the start and end of its JVM."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from feature_store import spark_surroundings
from feature_store.spark_surroundings import LOOPBACK
from streaming_job.environment import SettingsError
from streaming_job.runtime import checkpoint_files, temp_dir
from streaming_job.runtime.jvm import Jvm, OwnJvm, SubmittedJvm
from streaming_job.runtime.spark_options import LATE, is_local, options
from streaming_job.runtime.workers import fork_server
from streaming_job.settings import JobSettings

END_S = 30.0
"""Time that a JVM has to exit after its stdin is closed; then it is killed."""


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
    """The start of Spark in a JVM that this process starts in the background, or that runs already."""

    def __init__(self, conf: SparkConf, settings: JobSettings, jvm: Jvm) -> None:
        self._conf, self._settings, self._jvm = conf, settings, jvm
        self._session: SparkSession | None = None

    def begin(self) -> None:
        """Start the JVM without waiting for it, unless it runs already."""
        self._jvm.begin()

    def is_alive(self) -> bool:
        """Return whether the JVM still runs; waits shortly for its end."""
        return self._jvm.is_alive()

    def session(self) -> SparkSession:
        """Start the JVM if `begin` was not called, wait for it, and create the session.

        Raises:
            SettingsError: Java or Spark refuses the settings, or cannot use the checkpoint's location.
        """
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            context = SparkContext(conf=self._conf, gateway=self._jvm.gateway())
        except (Py4JJavaError, PySparkRuntimeError) as fault:
            raise SettingsError(
                f"Spark does not start: {_describe(fault)}; correct {_remedy(self._settings)}"
            ) from fault
        signal.signal(signal.SIGINT, interrupt)  # Spark's handler would cancel running jobs
        context.setLogLevel("WARN")
        session = SparkSession.builder.getOrCreate()
        checkpoint_files.require(session, self._settings.checkpoint)
        if place := self._settings.predecessor_checkpoint:
            checkpoint_files.require(session, place, "FRAUD_PREDECESSOR_CHECKPOINT")
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
        """End Spark, and the JVM that this process has started; return its exit code, or None."""
        if self._session is not None:
            self._warm_up.join(patience_s)
            # the session was stopped before, or the JVM is gone; the exit code shows other errors
            with suppress(Exception):
                self._session.stop()
        return self._jvm.end(patience_s)


@contextmanager
def launching(
    settings: JobSettings, jars: Sequence[Path], submitted: SubmittedJvm | None = None
) -> Iterator[Launch]:
    """Start a fork server for Spark's Python processes, and prepare the launch of a JVM.

    Args:
        submitted: the JVM of `spark-submit`; None: this process starts one.

    Yields:
        The launch of the JVM; at the end of the `with` block the JVM ends, unless it is `submitted`.
    """
    if submitted is None:
        spark_surroundings.prepare(local=is_local(settings.master), conf_dir=settings.spark_conf_dir)
        os.environ.pop("SPARK_LOCAL_DIRS", None)  # it would override spark.local.dir
    # one thread for each task: the tasks share the cores already
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    temporary = temp_dir.prepare(settings.work_dir.resolve())
    properties = options(settings, jars, temporary)
    if submitted is not None:
        properties = {name: value for name, value in properties.items() if name not in LATE}
    conf = SparkConf().setMaster(settings.master).setAll(list(properties.items()))
    with fork_server.running(temporary) as python, ThreadPoolExecutor(1, "launch-jvm") as launcher:
        os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
        if is_local(settings.master):
            os.environ["PYSPARK_PYTHON"] = str(python)
        elif submitted is None or "PYSPARK_PYTHON" not in os.environ:
            # executors on other machines have no fork server
            os.environ["PYSPARK_PYTHON"] = sys.executable
        launch = Launch(conf, settings, submitted or OwnJvm(conf, launcher))
        try:
            yield launch
        finally:
            launch.end()


def driver_host(session: SparkSession) -> str:
    """Return the address at which executors reach the driver."""
    return str(session.sparkContext.getConf().get("spark.driver.host", LOOPBACK))


def _start_workers(session: SparkSession) -> None:
    """Start the worker daemon while the query is being prepared."""
    with suppress(Exception):  # the session was stopped meanwhile
        session.sparkContext.parallelize([0], 1).map(str).count()
