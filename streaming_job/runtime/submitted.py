"""The job's settings under `spark-submit`: properties `spark.fraud.*`, and variables of the environment."""

import os
from collections.abc import Mapping

from streaming_job import environment
from streaming_job.environment import PREFIX, SettingsError
from streaming_job.runtime.jvm import EXIT
from streaming_job.runtime.spark_options import LATE
from streaming_job.settings import JobSettings

PROPERTY = "spark.fraud."
SUBMITTED = {
    "FRAUD_MASTER": "spark.master",
    "FRAUD_DRIVER_MEMORY": "spark.driver.memory",
    "FRAUD_DRIVER_JAVA_OPTIONS": "spark.driver.extraJavaOptions",
    "FRAUD_SPARK": "a property of its own for each setting",
    "FRAUD_SPARK_CONF_DIR": "--properties-file",
}
"""The settings that Spark knows already when `spark-submit` starts the job -> what sets them instead."""
SECRET = "FRAUD_KAFKA"
"""The setting that may not be a property, because Spark shows properties in its UI and its event log."""


def settings(properties: Mapping[str, str]) -> JobSettings:
    """Return the settings of the submitted job; those of Spark are in `spark` and `master`.

    The properties `spark.fraud.*` become variables of this process.

    Args:
        properties: Spark's, as spark-submit has read them.

    Raises:
        SettingsError: a setting is missing, wrong, given twice, or too late for a JVM that runs.
    """
    options = (properties.get(f"spark.driver.{kind}JavaOptions", "") for kind in ("default", "extra"))
    if EXIT not in " ".join(options).split():
        raise SettingsError(
            f"spark.driver.extraJavaOptions lacks {EXIT}, so the job would hang with a full heap: add it, as "
            "in deploy/spark/fraud.properties"
        )
    given = named(properties)
    _require_once(given, os.environ)
    os.environ.update(given)
    spark = {name: value for name, value in properties.items() if not name.startswith((PROPERTY, *LATE))}
    if spark.get("spark.app.name", "").endswith(".py"):  # as spark-submit names a program without --name
        del spark["spark.app.name"]
    own = environment.settings(JobSettings)
    return own.model_copy(update={"master": properties["spark.master"], "spark": spark})


def named(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the `spark.fraud.*` properties by the names of the variables that they stand for.

    `spark.fraud.topics.transactions` stands for FRAUD_TOPICS__TRANSACTIONS.
    """
    return {
        PREFIX + name.removeprefix(PROPERTY).replace(".", "__").upper(): value
        for name, value in properties.items()
        if name.startswith(PROPERTY)
    }


def _require_once(given: Mapping[str, str], variables: Mapping[str, str]) -> None:
    environment.refuse_unknown(given)
    for name, instead in SUBMITTED.items():
        if name in given or name in variables:
            raise SettingsError(f"{name} is too late: spark-submit has started Spark; set {instead} instead")
    if SECRET in given:
        raise SettingsError(
            f"{SECRET} as a property would show secrets in Spark's UI and event log: set the variable"
        )
    for name in sorted({*given} & {*variables}):
        if given[name] != variables[name]:
            raise SettingsError(
                f"{name} is set in the environment, and differently as a property: unset one of them"
            )
