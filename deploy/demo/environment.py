"""Settings of the demo's job; all paths are under the demo's data directory.

The caller's FRAUD_ variables do not change the job's settings, except those of OF_THE_MACHINE.
"""

import os
import shlex
from pathlib import Path

from deploy.local.stack import Endpoints
from streaming_job import environment
from streaming_job.settings import Arrival, JobSettings

DRIVER_MEMORY = "1g"
SNAPSHOT_S = 600
OF_THE_MACHINE = ("driver_java_options",)
"""Settings that the demo's job takes from the caller's FRAUD_ variables: they suit the machine and change no
alert."""


def forget_callers_settings() -> None:
    """Remove the job's FRAUD_ variables from the environment, except those of OF_THE_MACHINE."""
    prefixes = tuple(
        f"FRAUD_{name.upper()}" for name in JobSettings.model_fields if name not in OF_THE_MACHINE
    )
    for name in [name for name in os.environ if name.upper().startswith(prefixes)]:
        del os.environ[name]


def tracking_uri(data_dir: Path) -> str:
    """Return the tracking URI of the demo's MLflow; create MLflow's directory, `data_dir/mlflow`."""
    home = data_dir / "mlflow"
    home.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{home / 'mlflow.db'}"


def job_settings(
    data_dir: Path, endpoints: Endpoints, ui_port: int, *, replays: bool, label_delay_ms: int | None = None
) -> JobSettings:
    """Build the settings of the demo's job.

    Args:
        replays: whether the log is an archive with its original arrivals, without profiles; otherwise the job
            waits for the snapshot of the profiles.
        label_delay_ms: label delay of a job that keeps merchant facts; None: the job keeps none.
    """
    settings = environment.settings(
        JobSettings,
        bootstrap_servers=endpoints.bootstrap_servers,
        mlflow_tracking_uri=endpoints.mlflow_tracking_uri,
        checkpoint=str(data_dir / "checkpoint"),
        work_dir=data_dir / "work",
        driver_memory=DRIVER_MEMORY,
        ui_port=ui_port,
        wait_for_snapshot_s=0 if replays else SNAPSHOT_S,
        arrival=Arrival.CREATE if replays else Arrival.LOG_APPEND,
    )
    if label_delay_ms is None:
        return settings
    return settings.model_copy(update={"merchant_facts": True, "label_delay_ms": label_delay_ms})


def write_script(data_dir: Path, settings: JobSettings) -> Path:
    """Write the settings as a shell script that exports FRAUD_ variables, and return its path.

    After `. FILE` the commands `fraud verify`, `fraud job run` and others use these settings.
    """
    path = data_dir / "env"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.variables().items()]
    path.write_text("\n".join(lines) + "\n")
    return path
