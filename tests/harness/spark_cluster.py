"""A Spark cluster on this machine: a master and one-core workers, each in its own process."""

import secrets
from collections.abc import Mapping
from pathlib import Path

import psutil

from deploy.local import java
from deploy.local.child import Child
from deploy.local.ports import HOST, Ports, choose
from feature_store import spark_surroundings

MEMORY_MB = 1024
"""Memory of each executor."""


class SparkCluster:
    """Standalone master, and workers with room for an executor of one core each; a context manager."""

    def __init__(self, directory: Path, executors: int, environment: Mapping[str, str]) -> None:
        """Start it; clients that connect too early retry.

        Args:
            directory: for logs and the executors' working directories.
            executors: number of workers.
            environment: variables that the executors get.
        """
        directory.mkdir()
        self._directory = directory
        self.security = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(16),
            "spark.network.crypto.enabled": "true",
            "spark.io.encryption.enabled": "true",
        }
        """Spark's settings for all processes of the cluster, which refuse connections without the secret."""
        self.executor = {"spark.executor.cores": "1", "spark.executor.memory": f"{MEMORY_MB}m"}
        """Spark's settings for an application that has the cluster to itself."""
        self._environment = {
            **environment,
            "SPARK_HOME": str(spark_surroundings.require_own()),
            "SPARK_LOCAL_IP": HOST,
            # as bin/load-spark-env.sh sets it
            "SPARK_SCALA_VERSION": "2.13",
        }
        port = choose(Ports(), {}, frozenset({"kafka"}))["kafka"]
        self.url = f"spark://{HOST}:{port}"
        master = ("--host", HOST, "--port", str(port), "--webui-port", "0")
        self._master = self._start("master.Master", "master", *master)
        room = ("--cores", "1", "--memory", f"{MEMORY_MB}m")
        worker = ("--host", HOST, "--webui-port", "0", *room)
        self._workers = [
            self._start("worker.Worker", name, *worker, "--work-dir", str(directory / name), self.url)
            for name in (f"worker-{number}" for number in range(executors))
        ]

    def _start(self, main: str, name: str, *options: str) -> Child:
        command = [str(java.find().executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-D{setting}={value}" for setting, value in self.security.items()]
        command += ["-cp", f"{spark_surroundings.require_own()}/jars/*", f"org.apache.spark.deploy.{main}"]
        return Child(name, [*command, *options], self._directory / f"{name}.log", self._environment)

    def executors(self) -> list[psutil.Process]:
        """The running JVMs of executors."""
        return [child for worker in self._workers for child in psutil.Process(worker.pid).children()]

    def __enter__(self) -> "SparkCluster":
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers, self._master):
            process.kill()
