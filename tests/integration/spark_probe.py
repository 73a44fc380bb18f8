"""Program: starts Spark with the job's settings from the environment and prints their effects as JSON."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deploy.local import jars
from loadtests.faults.job_process import DAEMON
from streaming_job.group.placement import grouping_values
from streaming_job.runtime import session
from streaming_job.runtime.checkpoint import FIXED, Checkpoint
from streaming_job.runtime.checkpoint_errors import AccessError, CheckpointError
from streaming_job.settings import JobSettings

GROUPS = (1, 2, 3, 12, 48, 200)
DEADLINE_S = 60.0
GROUP = "waiting"
STARTS = {"killed": (FIXED,), "lost": ("offsets/0",), "damaged": (FIXED, "offsets/0")}
"""Name of a checkpoint -> its files, all of them empty."""


def main() -> None:
    settings = JobSettings()
    with session.launching(settings, jars.ensure("spark")) as launch:
        print(json.dumps(probe(settings, launch.session())))


def probe(settings: JobSettings, spark: SparkSession) -> dict[str, Any]:
    partitions = {}
    for groups in GROUPS:
        rows = spark.createDataFrame([(value,) for value in grouping_values(groups)], "key_group int")
        spread = rows.repartition(groups, "key_group").select("key_group", F.spark_partition_id())
        result = {row[0]: row[1] for row in spread.collect()}
        partitions[groups] = [result[value] for value in grouping_values(groups)]
    hadoop = spark._jsc.hadoopConfiguration()
    path = spark._jvm.org.apache.hadoop.fs.Path(f"file://{settings.checkpoint}")
    managers = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    # by the session's Hadoop configuration, as in a streaming query
    manager = managers.create(path, spark._jsparkSession.sessionState().newHadoopConf())
    return {
        "partitions": partitions,
        "file_system": path.getFileSystem(hadoop).getClass().getName(),
        "file_manager": manager.getClass().getName(),
        "listening": [
            connection.laddr.ip
            for process in psutil.Process().children(recursive=True)
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ],
        "unopened": mended_without_access(spark, settings.work_dir / "unopened", Path.mkdir),
        "unread": mended_without_access(spark, settings.work_dir / "unread", make_unreadable),
        "fixed": [fixed_by(spark, settings.work_dir / name, *files) for name, files in STARTS.items()],
        "residents": residents(spark, settings.work_dir),
        "ended_by_kill_links": is_ended_by_kill_links(spark, settings.work_dir / "release"),
        "settings": dict(spark.sparkContext.getConf().getAll()),
    }


def command(process: psutil.Process | None) -> list[str]:
    """Words of a process's command; none if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()).split() if process else []
    return []


def residents(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """Process ids of tasks in 20 Spark jobs, in one after a kill, and in three with a kill or an error."""
    context, mark = spark.sparkContext, str(directory / "first-attempt")

    def processes(act: Callable[[int], None] = lambda partition: None) -> list[int]:
        def task(partition: int, _: Iterator[int]) -> list[int]:
            act(partition)
            return [os.getpid()]

        return context.parallelize(range(3), 3).mapPartitionsWithIndex(task).collect()

    def at_first(act: Callable[[], object]) -> Callable[[int], None]:
        def act_once(partition: int) -> None:
            if partition == 0 and not os.path.exists(mark):
                Path(mark).touch()
                act()

        return act_once

    def kill_workers() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not Path(mark).exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in psutil.Process().children(recursive=True):
            words = command(process)
            if DAEMON in words and "partition" not in words and DAEMON in command(process.parent()):
                process.kill()

    rounds = [processes() for _ in range(20)]
    os.kill(rounds[-1][0], signal.SIGKILL)
    result: dict[str, Any] = {"rounds": rounds, "one_killed": processes()}
    result["killed_in_a_task"] = processes(at_first(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    os.unlink(mark)
    result["raised_in_a_task"] = processes(at_first(lambda: 1 / 0))
    os.unlink(mark)
    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill_workers)
        result["worker_killed"] = processes(at_first(lambda: time.sleep(DEADLINE_S)))
        killing.result()
    return result


def fixed_by(spark: SparkSession, directory: Path, *files: str) -> str:
    """Create a checkpoint of empty `files`; return the settings that its first start fixed, or the error."""
    for file in files:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).touch()
    try:
        return str(Checkpoint(spark, str(directory)).fixed())
    except CheckpointError as fault:
        return str(fault)


def make_unreadable(file: Path) -> None:
    """Make a file that can be opened, but of which a read fails, even for root."""
    file.symlink_to("/proc/self/mem")


def mended_without_access(
    spark: SparkSession, directory: Path, make: Callable[[Path], None]
) -> tuple[str, list[str]]:
    """Mend a checkpoint whose newest entry `make` has made; return the error, and the entries afterwards."""
    for log in ("offsets", "commits"):
        (directory / log).mkdir(parents=True)
        (directory / log / "0").write_text("v1\n{}\n")
    (directory / "offsets" / "1").write_text("v1\n{}\n")
    make(directory / "commits" / "1")
    try:
        Checkpoint(spark, str(directory)).mend()
    except AccessError as fault:
        return str(fault), sorted(str(path.relative_to(directory)) for path in directory.glob("*/*"))
    raise AssertionError("the entry was read")


def is_ended_by_kill_links(spark: SparkSession, release: Path) -> bool:
    """Whether the links of Spark's UI can end a running job."""

    def wait(rows: Iterator[int]) -> Iterator[int]:
        deadline = time.monotonic() + DEADLINE_S
        while not release.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        return rows

    def run() -> int:
        context.setJobGroup(GROUP, "waits for a file")
        return context.parallelize([0], 1).mapPartitions(wait).count()

    context = spark.sparkContext
    tracker = context.statusTracker()
    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(run)
        deadline = time.monotonic() + DEADLINE_S
        stages: list[int] = []
        while not stages and time.monotonic() < deadline:
            time.sleep(0.05)
            result = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(GROUP)]
            stages = [stage for info in result if info for stage in info.stageIds]
        assert stages
        links = [f"jobs/job/kill/?id={info.jobId}" for info in result if info]
        links += [f"stages/stage/kill/?id={stage}&terminate=true" for stage in stages]
        for link in links:
            for body in (None, b""):  # GET, POST
                # an unknown link is answered with an error
                with urlopen(f"{context.uiWebUrl}/{link}", body, DEADLINE_S) as answer:
                    answer.read()
        release.touch()
        return job.exception() is not None


if __name__ == "__main__":
    main()
