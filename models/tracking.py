"""Access to MLflow without telemetry, log noise or folders in the working directory.

Importing mlflow takes seconds, so it is imported at the first use of the registry, or earlier by `load`.
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from models.errors import ModelMissingError, ModelUnavailableError

EXPERIMENT = "card-fraud"
DISK_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # callers retry themselves; MLflow's defaults wait for a server for up to a quarter of an hour
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def load() -> None:
    """Import MLflow; a long-lived process calls this before its latency matters.

    MLflow's own model loaders are disabled in this process: they unpickle, or trust a model's metadata.
    """
    os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow.artifacts  # noqa: F401


@contextmanager
def registry(tracking_uri: str, sought: str = "", *, creates: bool = False) -> Iterator[Any]:
    """Open a client of the registry at `tracking_uri`, and use that address for the fluent API meanwhile.

    Args:
        sought: what the block asks for, as "model NAME/VERSION", for the error if the registry lacks it.
        creates: whether a SQLite file that does not exist is created; it may only be misspelt, or on a volume
            that is not mounted.

    Yields:
        mlflow.MlflowClient.

    Raises:
        ModelMissingError: what the caller's block asks for, a model for example, is not in the registry.
        ModelUnavailableError: the registry cannot be reached, or returns another error.
    """
    file = sqlite_file(tracking_uri)
    if not creates and file is not None and not file.exists():
        raise ModelUnavailableError(
            f"there is no model registry {tracking_uri}: no file {file}; check MLflow's tracking URI, or "
            "register a first model there: fraud models train"
        )
    load()
    import mlflow
    from mlflow.exceptions import MlflowException

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_registry_uri(tracking_uri)
    try:
        yield mlflow.MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
    except (MlflowException, OSError) as error:
        first_line, *further = str(error).splitlines() or [type(error).__name__]
        check = "MLflow's tracking URI"
        if first_line.endswith(":"):  # files were not fetched: for each its path, between #, and the cause
            causes = (line for line in further if line and not line.startswith("#"))
            first_line = f"{first_line} {next(causes, '')}"
            check = "this machine's access to the store of its files"
        if password := urlsplit(tracking_uri).password:
            first_line = first_line.replace(password, "***")
        full = next((text for text in DISK_FULL if text in str(error)), None)
        if full is not None:  # MLflow lists the errors of single files below its first line
            raise ModelUnavailableError(
                f"a file of the registry was not copied: {full}; free space"
            ) from error
        code = getattr(error, "error_code", None)
        # a version that is no number is an invalid parameter
        if code == "RESOURCE_DOES_NOT_EXIST" or (sought and code == "INVALID_PARAMETER_VALUE"):
            raise ModelMissingError(
                f"the registry has no {sought or 'such thing'} ({first_line}); `fraud models list` shows "
                "what it has"
            ) from error
        raise ModelUnavailableError(f"the model registry failed: {first_line}; check {check}") from error
    finally:
        mlflow.set_tracking_uri(before[0])
        mlflow.set_registry_uri(before[1])


def sqlite_file(tracking_uri: str) -> Path | None:
    """Return the file of a registry in SQLite; None of another registry, or one in memory."""
    url = urlsplit(tracking_uri)
    is_file = url.scheme.partition("+")[0] == "sqlite" and not url.netloc and len(url.path) > 1
    return Path(url.path.removeprefix("/")) if is_file and url.path != "/:memory:" else None


def experiment_id(client: Any, tracking_uri: str) -> str:
    """Return the id of this project's experiment; create the experiment if necessary."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is not None:
        return str(experiment.experiment_id)
    location = None
    if (file := sqlite_file(tracking_uri)) is not None:
        # otherwise MLflow would write to ./mlruns of the current directory
        location = (file.resolve().parent / "artifacts").as_uri()
    return str(client.create_experiment(EXPERIMENT, artifact_location=location))
