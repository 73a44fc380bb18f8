"""Spark's environment variables: those of other installations do not reach the project's Spark."""

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyspark
import pytest

from feature_store import spark_surroundings
from feature_store.spark_surroundings import ForeignSparkError

pytestmark = pytest.mark.unit


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of another Spark; those of the test's process come back afterwards."""
    for name in (*spark_surroundings.IGNORED, "SPARK_HOME"):
        monkeypatch.setenv(name, "/opt/spark-3.1")
    for name in (*spark_surroundings.USED, "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("surroundings")
def test_the_variables_of_another_spark_are_removed() -> None:
    spark_surroundings.prepare(local=True)
    assert os.environ["SPARK_HOME"] == str(Path(pyspark.__file__).parent)
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    left = [name for name, value in os.environ.items() if value == "/opt/spark-3.1"]
    assert left == []


@pytest.mark.usefixtures("surroundings")
def test_a_directory_of_settings_is_read_if_it_is_named(tmp_path: Path) -> None:
    spark_surroundings.prepare(local=False, conf_dir=str(tmp_path))
    assert os.environ["SPARK_CONF_DIR"] == str(tmp_path)
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.usefixtures("surroundings")
def test_variables_that_spark_obeys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java-8")
    monkeypatch.setenv("HADOOP_CONF_DIR", "")
    assert spark_surroundings.used() == ["JAVA_HOME"]


def test_another_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "pyspark"
    other.mkdir()
    (other / "__init__.py").write_text("")
    monkeypatch.delitem(sys.modules, "pyspark")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ForeignSparkError, match=f"pyspark is imported from {other}.*unset PYTHONPATH"):
        spark_surroundings.require_own()
    monkeypatch.setattr(spark_surroundings.importlib.util, "find_spec", lambda _: ModuleSpec("pyspark", None))
    with pytest.raises(ForeignSparkError):
        spark_surroundings.require_own()
