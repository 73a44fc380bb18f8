"""MLflow, quiet and offline: no telemetry, no chatter, no folders in the working directory.

Importing mlflow takes seconds, so only what writes to or copies from the registry comes here.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import ModelMissingError, ModelUnavailableError

EXPERIMENT = "card-fraud"
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # who asks asks again: MLflow's own defaults wait for a server for up to a quarter of an hour
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def load() -> None:
    """Import MLflow, which a long-lived process does before its time matters.

    Its loaders of models are off in this process: they unpickle, or trust what a model says of itself.
    """
    os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow.artifacts  # noqa: F401


@contextmanager
def registry(tracking_uri: str) -> Iterator[Any]:
    """A client of the registry at `tracking_uri`, which is also the fluent API's while inside.

    Yields:
        mlflow.MlflowClient.

    Raises:
        ModelMissingError: it has no such model.
        ModelUnavailableError: it cannot be reached, or refuses.
    """
    load()
    import mlflow
    from mlflow.exceptions import MlflowException

    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_registry_uri(tracking_uri)
    try:
        yield mlflow.MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
    except (MlflowException, OSError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        gone = getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"
        raise (ModelMissingError if gone else ModelUnavailableError)(
            f"the model registry failed: {first_line}; check MLflow's tracking URI"
        ) from error
    finally:
        mlflow.set_tracking_uri(before[0])
        mlflow.set_registry_uri(before[1])


def experiment_id(client: Any, tracking_uri: str) -> str:
    """The experiment of this project, made if there is none; returns its id."""
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    location = None
    if tracking_uri.startswith("sqlite:///"):
        # else the files would go to ./mlruns of whoever runs first
        beside = Path(tracking_uri.removeprefix("sqlite:///")).resolve().parent / "artifacts"
        location = beside.as_uri()
    return str(client.create_experiment(EXPERIMENT, artifact_location=location))
