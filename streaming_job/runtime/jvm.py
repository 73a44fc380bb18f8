"""The JVM of Spark's driver: started by this process, or by the `spark-submit` that started this process."""

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark import SparkConf, __version__
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway

from streaming_job.environment import SettingsError

EXIT = "-XX:+ExitOnOutOfMemoryError"
"""Ends the driver's JVM when its heap is full: otherwise a thread dies or hangs, and the job with it."""
GONE_S = 0.5
"""Time that a JVM may take to exit after its connections have broken."""
POLL_S = 0.05


class Jvm(Protocol):
    """A JVM in which Spark's driver runs."""

    def begin(self) -> None:
        """Start it without waiting for it, unless it runs already."""

    def gateway(self) -> Any:
        """Return the connection to it, once it runs."""

    def is_alive(self) -> bool:
        """Return whether it still runs; waits up to GONE_S for its end."""

    def end(self, patience_s: float) -> int | None:
        """End it, or kill it after `patience_s`, and return its exit code; None: not started, or not ours."""


class OwnJvm:
    """A JVM that this process starts in the background, and ends."""

    def __init__(self, conf: SparkConf, launcher: ThreadPoolExecutor) -> None:
        self._conf, self._launcher = conf, launcher
        self._gateway: Future[Any] | None = None

    def begin(self) -> None:
        """Start it without waiting for it."""
        if self._gateway is None:
            self._gateway = self._launcher.submit(launch_gateway, self._conf)

    def gateway(self) -> Any:
        """Return the connection to it, once it runs.

        Raises:
            PySparkRuntimeError: it exited.
        """
        self.begin()
        assert self._gateway is not None
        return self._gateway.result()

    def is_alive(self) -> bool:
        """Return whether it still runs; waits up to GONE_S for its end."""
        with suppress(subprocess.TimeoutExpired):
            self.gateway().proc.wait(GONE_S)
            return False
        return True

    def end(self, patience_s: float) -> int | None:
        """End it, or kill it after `patience_s`, and return its exit code; None if it was not started."""
        if self._gateway is None or self._gateway.exception() is not None:
            return None
        process: subprocess.Popen[bytes] = self._gateway.result().proc  # noqa: TID251 - only its type
        with suppress(OSError):  # it is gone
            process.stdin.close()  # type: ignore[union-attr]
        try:
            return process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


class SubmittedJvm:
    """The JVM of `spark-submit`, the parent of this process; it exits after it, with its exit code."""

    def __init__(self) -> None:
        """Connect to it.

        Raises:
            SettingsError: this process was not started by `spark-submit`, or by that of another Spark.
        """
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            raise SettingsError(
                "this program is for `spark-submit --properties-file FILE`; to start the job without it, use "
                "`fraud job run`"
            )
        self._gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        version = str(self._gateway.jvm.org.apache.spark.package.SPARK_VERSION())
        if version != __version__:
            raise SettingsError(
                f"spark-submit is that of Spark {version}, this release is tested with {__version__}: call "
                "bin/spark-submit in the directory of its pyspark"
            )

    def begin(self) -> None:
        """Do nothing: it runs."""

    def gateway(self) -> Any:
        """Return the connection to it."""
        return self._gateway

    def properties(self) -> dict[str, str]:
        """Return Spark's properties as `spark-submit` has read them."""
        return dict(SparkConf(_jvm=self._gateway.jvm).getAll())

    def require_class(self, name: str, jars: str) -> None:
        """Check that a class is on the class path, which cannot be extended any more.

        Raises:
            SettingsError: it is missing.
        """
        if not self._gateway.jvm.org.apache.spark.util.Utils.classIsLoadable(name):
            raise SettingsError(
                f"spark.driver.extraClassPath lacks the jar of {name}: set it, and "
                f"spark.executor.extraClassPath, to {jars}"
            )

    def on_signals(self, act: Callable[[], object]) -> None:
        """Call `act` when it gets SIGTERM or SIGINT, in place of its own end.

        A supervisor's signal goes to the JVM, which is the main process. Its own end would break the epoch.
        """
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        handler = _SignalHandler(act)
        for name in ("TERM", "INT"):
            self._gateway.jvm.sun.misc.Signal.handle(self._gateway.jvm.sun.misc.Signal(name), handler)

    def is_alive(self) -> bool:
        """Return whether it still answers; waits up to GONE_S for its end."""
        end = time.monotonic() + GONE_S
        while time.monotonic() < end:
            try:
                self._gateway.jvm.java.lang.System.nanoTime()
            except (Py4JError, OSError):
                return False
            time.sleep(POLL_S)
        return True

    def end(self, patience_s: float) -> int | None:
        """Do nothing: it ends after this process."""
        with suppress(Exception):  # it is gone
            self._gateway.shutdown()
        return None


class _SignalHandler:
    """Java's `sun.misc.SignalHandler` in Python."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def handle(self, _signal: Any) -> None:
        self._act()

    class Java:
        implements = ("sun.misc.SignalHandler",)
