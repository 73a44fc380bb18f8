"""The effects of the job's settings in a real Spark session."""

import json
import os
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import spark_probe

pytestmark = [pytest.mark.integration, pytest.mark.without_stack, pytest.mark.timeout(600)]

SECRET = "not for the screen"


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Output of the probe, a process of its own: a JVM that pytest started would live until pytest ends."""
    directory = tmp_path_factory.mktemp("session")
    # another Spark's settings, with which no session would start
    foreign = "spark.eventLog.enabled true\nspark.eventLog.dir hdfs://no-host.invalid:8020/logs\n"
    (directory / "spark-defaults.conf").write_text(foreign)
    (directory / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://no-host.invalid</value></property>"
        "</configuration>"
    )
    surroundings = {
        **dict.fromkeys(("SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_DIRS"), "/opt/spark-3.1"),
        "SPARK_CONF_DIR": str(directory),
        "HADOOP_CONF_DIR": str(directory),
        "PYSPARK_SUBMIT_ARGS": "--master yarn",
    }
    settings = {
        "FRAUD_BOOTSTRAP_SERVERS": "none",
        "FRAUD_MLFLOW_TRACKING_URI": "none",
        "FRAUD_CHECKPOINT": str(directory / "checkpoint"),
        "FRAUD_WORK_DIR": str(directory / "work"),
        "FRAUD_UI_PORT": "4040",
        "FRAUD_SPARK": json.dumps({"spark.ui.retainedJobs": "7"}),
        "FRAUD_KAFKA": json.dumps({"ssl.key.pem": SECRET, "sasl.oauthbearer.config": SECRET}),
    }
    answer = subprocess.run(
        [sys.executable, str(Path(spark_probe.__file__))],
        env={**os.environ, **surroundings, **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    content = json.loads(answer.stdout.splitlines()[-1])
    assert isinstance(content, dict)
    return content


def test_spark_puts_each_key_group_in_the_partition_of_its_number(probed: dict[str, Any]) -> None:
    assert probed["partitions"] == {str(groups): list(range(groups)) for groups in spark_probe.GROUPS}


def test_settings_of_another_spark_are_ignored(probed: dict[str, Any]) -> None:
    assert "spark.eventLog.enabled" not in probed["settings"]
    assert probed["settings"]["spark.master"].startswith("local")


def test_the_tasks_of_a_partition_run_in_one_process(probed: dict[str, Any]) -> None:
    rounds = probed["residents"]["rounds"]
    assert rounds == rounds[:1] * 20
    assert len(set(rounds[0])) == 3


def test_a_killed_process_is_replaced(probed: dict[str, Any]) -> None:
    residents = probed["residents"]
    before, after = residents["rounds"][-1], residents["one_killed"]
    assert after[0] != before[0]
    assert after[1:] == before[1:]


@pytest.mark.parametrize("how", ["killed_in_a_task", "raised_in_a_task", "worker_killed"])
def test_spark_repeats_a_task_in_a_new_process(probed: dict[str, Any], how: str) -> None:
    """Residents do not change this: one ends if a task fails in it, or if Spark kills the task's worker."""
    order = list(probed["residents"])
    before, after = probed["residents"][order[order.index(how) - 1]], probed["residents"][how]
    assert len(after) == 3
    assert after[0] not in before


def test_checkpoint_files_are_written_without_child_processes(probed: dict[str, Any]) -> None:
    assert probed["file_system"] == "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
    assert probed["file_manager"].endswith(".FileSystemBasedCheckpointFileManager")


def test_a_first_start_that_was_killed_as_it_fixed_its_settings_is_still_to_come(
    probed: dict[str, Any],
) -> None:
    killed, lost, damaged = probed["fixed"]
    assert killed == "None"
    assert lost.startswith("the checkpoint's file job.json is missing; restore ")
    assert damaged.startswith("the checkpoint's file job.json is damaged (")


@pytest.mark.parametrize(("name", "act"), [("unopened", "opened"), ("unread", "read")])
def test_an_entry_that_cannot_be_read_is_not_dropped_as_damaged(
    probed: dict[str, Any], name: str, act: str
) -> None:
    error, entries = probed[name]
    assert error.startswith(f"the checkpoint's file commits/1 cannot be {act} (")
    assert {"commits/0", "commits/1", "offsets/0", "offsets/1"} <= set(entries)


def test_the_query_of_a_checkpoint_at_a_uri_is_known_until_it_is_removed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "commits" / "0").write_text("v1")
    (checkpoint / "metadata").write_text('{"id": "first"}')
    program = (
        "from deploy.replay import checkpoints\n"
        "from streaming_job.settings import JobSettings\n"
        "place = JobSettings().checkpoint\n"
        "with checkpoints.opened(JobSettings()) as opened:\n"
        "    for _ in range(2):\n"
        "        print(opened.query_id(place), opened.remove(place))"
    )
    settings = {
        "FRAUD_BOOTSTRAP_SERVERS": "none", "FRAUD_MLFLOW_TRACKING_URI": "none",
        "FRAUD_CHECKPOINT": checkpoint.as_uri(), "FRAUD_WORK_DIR": str(tmp_path / "work"),
    }  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-2:] == ["first True", "None False"]
    assert tmp_path.exists()
    assert not checkpoint.exists()


def test_ports_without_password_are_reached_only_from_this_machine(probed: dict[str, Any]) -> None:
    assert probed["settings"]["spark.ui.enabled"] == "true"
    # UI, driver and block manager
    assert len(probed["listening"]) >= 3
    for address in map(ip_address, probed["listening"]):
        assert (getattr(address, "ipv4_mapped", None) or address).is_loopback, probed["listening"]


def test_links_of_the_ui_cannot_end_a_job(probed: dict[str, Any]) -> None:
    assert probed["settings"]["spark.ui.killEnabled"] == "false"
    assert probed["ended_by_kill_links"] is False


def test_the_operators_settings_win_and_spark_does_not_get_the_kafka_clients_secrets(
    probed: dict[str, Any],
) -> None:
    assert probed["settings"]["spark.ui.retainedJobs"] == "7"
    assert probed["settings"]["spark.sql.adaptive.enabled"] == "false"
    assert SECRET not in json.dumps(probed["settings"])
