"""The job under `spark-submit`: in a JVM that runs before it, with settings from a properties file."""

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from harness.backup import back_up
from harness.spark_cluster import SparkCluster
from harness.submitted_job import PROGRAM, SubmittedJob, properties
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.child import Child
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.faults.job_process import PATIENCE_S
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def fresh(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Installation:
    """An installation with a champion, and without a job."""
    installation = Installation(stack, topic_names(), tmp_path)
    installation.roll_out()
    return installation


def test_without_spark_submit_the_program_says_how_to_start_it(tmp_path: Path) -> None:
    with Child("the program", [sys.executable, str(PROGRAM)], tmp_path / "log") as program:
        assert program.exit_code() == 1
        assert program.log.startswith("error: this program is for `spark-submit")


def test_sigterm_to_spark_submit_ends_the_epoch_cleanly(fresh: Installation) -> None:
    with SubmittedJob(fresh.directory / "first", properties(fresh.settings)) as job:
        fresh.send(2_000)
        fresh.caught_up(job)
        assert job.terminate() == 0, job.log
        assert "the last epoch is not saved" not in job.log
        assert "Traceback" not in job.log
    fresh.audit()


@only_thorough
def test_a_submitted_jvm_that_is_killed_ends_the_job_which_continues(fresh: Installation) -> None:
    given = properties(fresh.settings)
    with SubmittedJob(fresh.directory / "first", given) as job:
        fresh.send(500)
        fresh.caught_up(job)
        family = job.descendants()
        job.kill_alone()
        fresh.send(500)
        assert not psutil.wait_procs(family, timeout=PATIENCE_S)[1]
    with SubmittedJob(fresh.directory / "second", given) as job:
        fresh.caught_up(job)
        assert job.terminate() == 0, job.log
    fresh.audit()


@only_thorough
def test_a_second_driver_fences_the_first_and_both_end_as_the_table_of_exit_codes_says(
    fresh: Installation,
) -> None:
    given = properties(fresh.settings, **{"spark.fraud.epoch_s": "2"})
    with SubmittedJob(fresh.directory / "first", given) as first:
        fresh.send(1_000)
        fresh.caught_up(first)
        copy = fresh.directory / "copy"
        back_up(Path(fresh.settings.checkpoint), copy)
        moved = {"spark.fraud.checkpoint": str(copy), "spark.fraud.work_dir": str(fresh.directory / "other")}
        with SubmittedJob(fresh.directory / "second", {**given, **moved}) as second:
            second.wait_until(lambda: bool(second.epochs()), PATIENCE_S)
            fresh.send(1_000)
            assert first.exit_code() == 3, first.log
            assert first.error.startswith("error: another instance of job ")
            fresh.send(500)
            fresh.caught_up(second)
            assert second.terminate() == 0, second.log
    fresh.audit()


@only_thorough
def test_executors_of_a_submitted_job_come_and_go(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    topics = topic_names()
    broker.create(stack.bootstrap_servers, topics, partitions=4)
    with SparkCluster(tmp_path / "cluster", executors=3, environment={}) as cluster:
        fresh = Installation(stack, topics, tmp_path)
        fresh.roll_out()
        spark = {**cluster.executor, **cluster.security, "spark.cores.max": "2"}
        given = properties(fresh.settings, **spark)
        with SubmittedJob(tmp_path / "job", given, master=cluster.url) as job:
            fresh.send(1_000)
            fresh.caught_up(job)
            for _ in range(3):
                killed = cluster.executors()[0]
                killed.kill()
                fresh.send(500)
                fresh.caught_up(job)
                job.wait_until(lambda: len(cluster.executors()) == 2, PATIENCE_S)
            assert job.terminate() == 0, job.log
        fresh.audit()


@only_thorough
def test_standalone_clusters_take_no_python_driver(fresh: Installation) -> None:
    with SparkCluster(fresh.directory / "cluster", executors=1, environment={}) as cluster:
        given = properties(fresh.settings, **cluster.security, **{"spark.submit.deployMode": "cluster"})
        with SubmittedJob(fresh.directory / "job", given, master=cluster.url) as job:
            assert job.exit_code() == 1
            assert "Cluster deploy mode is currently not supported for python applications" in job.log
