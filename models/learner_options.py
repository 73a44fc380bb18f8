"""Options of a learner on the command line, the same for every command that fits a model."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

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


def takes_learner(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `learner` of a command by the options of a learner.

    Typer reads the options from the signature, so the returned command's signature has OPTIONS in place of
    `learner`.
    """

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        learner = Learner(**{name: arguments.pop(name) for name in OPTIONS})
        command(learner=learner, **arguments)

    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(USUAL, name), annotation=option
        )
        for name, option in OPTIONS.items()
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += options if parameter.name == "learner" else own
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_options
