"""Settings from the properties of `spark-submit`, and the ones that are refused."""

import os
from pathlib import Path

import pytest
from harness.settings_of_nowhere import settings as settings_of_nowhere

import deploy.spark
from streaming_job.environment import SettingsError
from streaming_job.runtime import spark_options, submitted
from streaming_job.runtime.jvm import EXIT

pytestmark = pytest.mark.unit

GIVEN = {
    "spark.master": "spark://master:7077",
    "spark.app.name": "fraud-job.py",
    "spark.executor.cores": "1",
    "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {EXIT}",
    "spark.fraud.bootstrap_servers": "kafka:9092",
    "spark.fraud.mlflow_tracking_uri": "http://mlflow",
    "spark.fraud.checkpoint": "hdfs://name/checkpoint",
    "spark.fraud.work_dir": "/work",
    "spark.fraud.key_groups": "7",
    "spark.fraud.topics.transactions": "payments",
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without settings, restored afterwards."""
    for name in [*os.environ, *submitted.named(GIVEN)]:
        if name.startswith("FRAUD_"):
            monkeypatch.setenv(name, "")  # so that it is restored
            monkeypatch.delenv(name)


def test_properties_are_settings_and_sparks_own_stay_sparks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUD_KAFKA", '{"sasl.password": "secret"}')
    settings = submitted.settings(GIVEN)
    assert settings.master == "spark://master:7077"
    assert settings.key_groups == 7
    assert settings.topics.transactions == "payments"
    assert settings.topics.dead_letters == "dead-letters"
    assert settings.kafka == {"sasl.password": "secret"}
    assert settings.spark == {"spark.master": "spark://master:7077", "spark.executor.cores": "1"}
    assert submitted.settings({**GIVEN, "spark.app.name": "eu"}).spark["spark.app.name"] == "eu"


@pytest.mark.parametrize(
    ("changes", "variables", "words"),
    [
        (
            {"spark.fraud.driver_memory": "2g"},
            {},
            "FRAUD_DRIVER_MEMORY is too late: spark-submit has",
        ),
        ({}, {"FRAUD_MASTER": "local[2]"}, "set spark.master instead"),
        ({}, {"FRAUD_SPARK": "{}"}, "FRAUD_SPARK is too late"),
        ({"spark.fraud.kafka": "{}"}, {}, "FRAUD_KAFKA as a property would show secrets"),
        ({"spark.fraud.keygroups": "2"}, {}, "did you mean FRAUD_KEY_GROUPS?"),
        ({}, {"FRAUD_KEY_GROUPS": "8"}, "FRAUD_KEY_GROUPS is set in the environment, and differently"),
        ({"spark.driver.extraJavaOptions": ""}, {}, f"lacks {EXIT}"),
        ({"spark.fraud.work_dir": "/other", "spark.fraud.key_groups": "x"}, {}, "FRAUD_KEY_GROUPS: "),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    changes: dict[str, str], variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as fault:
        submitted.settings({**GIVEN, **changes})
    assert words in str(fault.value)


def test_the_same_value_as_variable_and_as_property_is_no_contradiction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FRAUD_KEY_GROUPS", "7")
    assert submitted.settings(GIVEN).key_groups == 7


@pytest.mark.parametrize("name", spark_options.FIXED)
def test_properties_that_would_break_the_job_are_refused(name: str, tmp_path: Path) -> None:
    settings = settings_of_nowhere()
    own = spark_options.options(settings, (), tmp_path)
    same = settings.model_copy(update={"spark": {name: own[name], "spark.ui.retainedJobs": "7"}})
    assert spark_options.options(same, (), tmp_path)["spark.ui.retainedJobs"] == "7"
    with pytest.raises(SettingsError, match=f"{name}=other would break the job, which needs {own[name]}"):
        spark_options.options(settings.model_copy(update={"spark": {name: "other"}}), (), tmp_path)


def test_the_example_of_a_properties_file_is_accepted() -> None:
    lines = Path(deploy.spark.__file__).with_name("fraud.properties").read_text().splitlines()
    given = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert submitted.settings(given).master == "local[2,4]"
