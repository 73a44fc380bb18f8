"""What the job's settings come to in a real Spark session."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spark_probe

from deploy.local import jars
from streaming_job import class_archive
from streaming_job.class_archive import ArchiveError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SECRET = "not for the screen"
MEMORY_MIB = 600
"""Of the driver; another than that for which classes are archived."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the probe tells; a process of its own, because a JVM stays as long as its Python."""
    class_archive.make(jars.classes_directory(), jars.ensure("spark"))
    directory = tmp_path_factory.mktemp("session")
    settings = {
        "FRAUD_BOOTSTRAP_SERVERS": "none",
        "FRAUD_MLFLOW_TRACKING_URI": "none",
        "FRAUD_CHECKPOINT": str(directory / "checkpoint"),
        "FRAUD_WORK_DIR": str(directory / "work"),
        "FRAUD_UI_PORT": "0",
        "FRAUD_SPARK": json.dumps({"spark.driver.memory": f"{MEMORY_MIB}m"}),
        "FRAUD_KAFKA": json.dumps({"ssl.key.pem": SECRET, "sasl.oauthbearer.config": SECRET}),
    }
    answer = subprocess.run(
        [sys.executable, str(Path(spark_probe.__file__))],
        env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def test_spark_puts_each_key_group_in_the_partition_of_its_number(found: dict[str, Any]) -> None:
    assert found["partitions"] == {str(groups): list(range(groups)) for groups in spark_probe.GROUPS}


def test_checkpoint_files_are_written_without_child_processes(found: dict[str, Any]) -> None:
    assert found["file_system"] == "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
    assert found["file_manager"].endswith(".FileSystemBasedCheckpointFileManager")


def test_state_is_kept_in_changelogs_of_rocksdb(found: dict[str, Any]) -> None:
    state = "spark.sql.streaming.stateStore."
    assert found["settings"][f"{state}providerClass"].endswith("RocksDBStateStoreProvider")
    assert found["settings"][f"{state}rocksdb.changelogCheckpointing.enabled"] == "true"


def test_half_of_the_heap_is_for_what_is_young_with_room_for_what_survives(found: dict[str, Any]) -> None:
    young = MEMORY_MIB / 2
    sizes = {"PS Eden Space": young * 4 / 6, "PS Survivor Space": young / 6, "PS Old Gen": MEMORY_MIB / 2}
    assert {name: found["heap"][name] for name in sizes} == pytest.approx(sizes, rel=0.05)


def test_plans_show_no_secret_of_the_kafka_client(found: dict[str, Any]) -> None:
    assert "card-log" in found["plan"]
    assert SECRET not in found["plan"]


def test_nearly_all_classes_come_from_the_archive(found: dict[str, Any]) -> None:
    assert found["archived"] > 100 * found["from jars"] > 0


def test_archive_is_of_one_java_and_one_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"1")
    this = class_archive.path(tmp_path, [jar])
    assert class_archive.path(tmp_path, [jar]) == this
    jar.write_bytes(b"22")
    other_jar = class_archive.path(tmp_path, [jar])
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert len({this, other_jar, class_archive.path(tmp_path, [jar])}) == 3


def test_without_an_archive_there_is_no_option_and_a_java_that_makes_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_archive.options(tmp_path, []) == []
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho this Java is broken >&2\nexit 1\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ArchiveError, match="this Java is broken"):
        class_archive.make(tmp_path / "classes", [])
    assert list((tmp_path / "classes").iterdir()) == []
