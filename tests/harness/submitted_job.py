"""The job as `spark-submit` runs it."""

import sys
from collections.abc import Mapping
from pathlib import Path

import deploy.spark
from deploy.local import jars
from feature_store import spark_surroundings
from loadtests.faults.job_process import JobProcess
from streaming_job.runtime.jvm import EXIT
from streaming_job.runtime.submitted import PROPERTY, SECRET, SUBMITTED
from streaming_job.settings import JobSettings

PROGRAM = Path(deploy.spark.__file__).with_name("fraud-job.py")


def properties(settings: JobSettings, **further: str) -> dict[str, str]:
    """The properties file of an installation, by name."""
    class_path = jars.class_path("spark")
    fraud = {
        PROPERTY + name.removeprefix("FRAUD_").lower().replace("__", "."): value
        for name, value in settings.variables().items()
        if name not in SUBMITTED and name != SECRET and value
    }
    return {
        **fraud,
        "spark.driver.extraJavaOptions": EXIT,
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        **further,
    }


class SubmittedJob(JobProcess):
    """A job under `spark-submit` in client mode."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        *,
        master: str = "local[2,4]",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        home = spark_surroundings.require_own()
        file = directory / "fraud.properties"
        file.write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
        command = [str(home / "bin" / "spark-submit"), "--master", master]
        command += ["--properties-file", str(file), str(PROGRAM)]
        # another directory's spark-defaults.conf must not count
        own = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, **(environment or {})}
        super().__init__(own, directory, command=command)
