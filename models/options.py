"""Options of several commands: of a learner, and of the model registry's address."""

from typing import Annotated

import typer

from feature_store.option_groups import takes
from feature_store.secret_options import from_environment, in_address
from models.algorithms import Learner

USUAL = Learner()
AlertBudget = Annotated[
    float, typer.Option(min=0, max=1, help="Share of transactions that may become alerts")
]
takes_learner = takes("learner", Learner)
"""Decorator that replaces the parameter `learner` of a command by the options of a learner."""


TrackingUri = Annotated[
    str,
    typer.Option(
        envvar="FRAUD_MLFLOW_TRACKING_URI",
        help="MLflow, e.g. sqlite:////directory/mlflow.db",
        callback=from_environment("FRAUD_MLFLOW_TRACKING_URI", in_address),
    ),
]
