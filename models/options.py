"""Options of several commands: of a learner, and of the model registry's address."""

from typing import Annotated, Any

import typer

from feature_store.option_groups import takes
from feature_store.secret_options import from_environment, in_address
from models.algorithms import Algorithm, Learner

USUAL = Learner()
OPTIONS: dict[str, Any] = {
    "algorithm": Annotated[Algorithm, typer.Option(help="Algorithm to fit")],
    "iterations": Annotated[int, typer.Option(min=1, help="Number of trees")],
    "leaves": Annotated[int, typer.Option(min=2, help="Greatest number of leaves of each boosted tree")],
    "learning_rate": Annotated[float, typer.Option(min=0.0001, help="Learning rate of gradient boosting")],
    "feature_share": Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1,
            help="Share of the features that each split of gradient boosting may use, drawn at random",
        ),
    ],
    "fraud_weight": Annotated[
        float,
        typer.Option(
            min=0.0001, help="Weight of a fraud in training; scores are probabilities only with weight 1"
        ),
    ],
    "seed": Annotated[int, typer.Option(help="The same data, options and seed give the same result")],
}
"""Field of `Learner` -> its option; the defaults are those of `Learner`."""
AlertBudget = Annotated[
    float, typer.Option(min=0, max=1, help="Share of transactions that may become alerts")
]
takes_learner = takes("learner", Learner, OPTIONS)
"""Decorator that replaces the parameter `learner` of a command by the options of a learner."""


TrackingUri = Annotated[
    str,
    typer.Option(
        envvar="FRAUD_MLFLOW_TRACKING_URI",
        help="MLflow, e.g. sqlite:////directory/mlflow.db",
        callback=from_environment("FRAUD_MLFLOW_TRACKING_URI", in_address),
    ),
]
