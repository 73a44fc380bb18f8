"""Options of a learner on the command line; the defaults are those of `algorithms.Learner`."""

from typing import Annotated

import typer

from models.algorithms import Algorithm, Learner

USUAL = Learner()
AlgorithmName = Annotated[Algorithm, typer.Option(help="Algorithm to fit")]
Iterations = Annotated[int, typer.Option(min=1, help="Number of trees")]
Leaves = Annotated[int, typer.Option(min=2, help="Leaves of each boosted tree")]
LearningRate = Annotated[float, typer.Option(min=0.0001, help="Learning rate of gradient boosting")]
FeatureShare = Annotated[
    float, typer.Option(min=0.01, max=1, help="Share of the features that each split may choose from")
]
FraudWeight = Annotated[
    float,
    typer.Option(
        min=0.0001, help="Weight of a fraud in training; with others than 1 scores are no probabilities"
    ),
]
AlertBudget = Annotated[
    float, typer.Option(min=0, max=1, help="Share of transactions that may become alerts")
]
