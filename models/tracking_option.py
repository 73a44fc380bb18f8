"""The option of the model registry's address."""

from typing import Annotated

import typer

from feature_store.secret_options import from_environment, in_address

TrackingUri = Annotated[
    str,
    typer.Option(
        envvar="FRAUD_MLFLOW_TRACKING_URI",
        help="MLflow, e.g. sqlite:////directory/mlflow.db",
        callback=from_environment("FRAUD_MLFLOW_TRACKING_URI", in_address),
    ),
]
