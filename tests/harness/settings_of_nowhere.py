"""Settings of a job that connects to nothing, for tests of what follows from settings."""

from pathlib import Path
from typing import Any

from streaming_job.settings import JobSettings


def settings(**changes: Any) -> JobSettings:
    """Return the defaults with changes; what has no default is "nowhere"."""
    nowhere = dict.fromkeys(("bootstrap_servers", "mlflow_tracking_uri", "checkpoint"), "nowhere")
    return JobSettings(**{**nowhere, "work_dir": Path("nowhere"), **changes})
