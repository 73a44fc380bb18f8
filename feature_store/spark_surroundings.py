"""The environment variables of Spark: this project starts its own PySpark's Spark, with its own settings.

A machine of a Spark cluster often has another Spark, whose variables would decide what is started here.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from feature_store.errors import FraudError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IGNORED = (
    # another Spark's settings: spark-defaults.conf, spark-env.sh
    "SPARK_CONF_DIR", "SPARK_ENV_LOADED",
    # arguments of a notebook or an enclosing spark-submit, and the address of its JVM
    "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_PIN_THREAD",
    # Spark Connect, in place of a session in this process
    "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "SPARK_TESTING",
)  # fmt: skip
"""Variables that `prepare` removes."""
USED = (
    "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_SUBMIT_OPTS", "JAVA_HOME", "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
)  # fmt: skip
"""Variables of the surroundings that Spark and its JVM obey."""
LOOPBACK = "127.0.0.1"
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


class ForeignSparkError(FraudError):
    """`PYTHONPATH` leads to the PySpark of another Spark installation."""


class SparkRunError(FraudError):
    """Spark did not start or finish.

    Check that Java 17 or newer is installed and that `JAVA_HOME` is its directory; read Spark's log above.
    """


def prepare(*, local: bool, conf_dir: str = "") -> None:
    """Set this process's variables so that pyspark starts its own Spark; call it before the first session.

    Args:
        local: whether the master is a local one; then Spark's ports are on loopback, unless SPARK_LOCAL_IP
            says otherwise, because driver and block manager ask for no password.
        conf_dir: directory whose spark-defaults.conf and other files Spark reads; empty: none.

    Raises:
        ForeignSparkError: pyspark is part of another installation.
    """
    home = require_own()
    for name in IGNORED:
        os.environ.pop(name, None)
    # if it is not set, Spark looks for the directory by a shell script that fails for paths with blanks
    os.environ["SPARK_HOME"] = str(home)
    if conf_dir:
        os.environ["SPARK_CONF_DIR"] = str(Path(conf_dir).resolve())
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def require_own() -> Path:
    """Return the directory of pyspark, which holds its Spark; does not import pyspark.

    Raises:
        ForeignSparkError: the directory holds no Spark, so the module belongs to another installation.
    """
    spec = importlib.util.find_spec("pyspark")
    directory = Path(spec.origin).parent if spec is not None and spec.origin else None
    if directory is None or not (directory / "jars").is_dir():
        raise ForeignSparkError(
            f"pyspark is imported from {directory}, which is not this release's; unset PYTHONPATH, or remove "
            "the other Spark from it"
        )
    return directory


def used() -> list[str]:
    """Return the names of USED variables that are set."""
    return [name for name in USED if os.environ.get(name)]


def start(master: str, name: str, config: Mapping[str, str]) -> "SparkSession":
    """Start a session whose Python workers run this interpreter; `prepare` was called before.

    Raises:
        SparkRunError: its JVM does not start.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_QUIET, **config}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise SparkRunError(
            f"Spark does not start ({str(error).splitlines()[0]}); install Java 17 or newer, and correct or "
            "unset JAVA_HOME"
        ) from error
