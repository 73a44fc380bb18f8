"""The demo's own settings: all under its data directory, nothing from the caller's FRAUD_ variables."""

import os
import shlex
import socket
from pathlib import Path

from deploy.local.ports import HOST
from deploy.local.stack import Endpoints
from streaming_job.settings import JobSettings

DRIVER_MEMORY = "1g"
SNAPSHOT_S = 600
OF_THE_MACHINE = ("driver_java_options", "warm_up_epochs")
"""The caller's settings that the demo's job keeps, too: what it takes, not what it works on."""


def forget_callers_settings() -> None:
    """Drop FRAUD_ variables that name somebody's own servers: the demo brings its own."""
    prefixes = tuple(
        f"FRAUD_{name.upper()}" for name in JobSettings.model_fields if name not in OF_THE_MACHINE
    )
    for name in [name for name in os.environ if name.upper().startswith(prefixes)]:
        del os.environ[name]


def tracking_uri(data_dir: Path) -> str:
    """MLflow's, as the stack of this directory has it; the directory is made."""
    home = data_dir / "mlflow"
    home.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{home / 'mlflow.db'}"


def job_settings(data_dir: Path, endpoints: Endpoints, ui_port: int, *, profiles: bool) -> JobSettings:
    """Settings of the demo's job; `profiles`: whether there are any."""
    return JobSettings(
        bootstrap_servers=endpoints.bootstrap_servers,
        mlflow_tracking_uri=endpoints.mlflow_tracking_uri,
        checkpoint=str(data_dir / "checkpoint"),
        work_dir=data_dir / "work",
        driver_memory=DRIVER_MEMORY,
        ui_port=ui_port,
        wait_for_snapshot_s=SNAPSHOT_S if profiles else 0,
    )


def write_script(data_dir: Path, settings: JobSettings) -> Path:
    """The variables as a file for the shell: `. FILE`, then `fraud verify`, `fraud job run` ..."""
    path = data_dir / "env"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.variables().items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
