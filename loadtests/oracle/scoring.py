"""A model's score of a transaction, or its failure code; rows are scored singly if a batch fails."""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.percentiles import LEVELS

REASONS = 5
"""An alert names at most this many features."""


class Model(Protocol):
    """The interface that the oracle needs of a model; `models.scoring.Scorer` has it."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the columns that `score` and `explain` take."""
        ...

    @property
    def quantiles(self) -> NDArray[np.float64] | None:
        """The least score of each percentile of `models.percentiles.LEVELS`; None if unknown."""
        ...

    def score(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of fraud of each row, shape (n,)."""
        ...

    def explain(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each feature's contribution to the score of each row, shape (n, features)."""
        ...


class Score(NamedTuple):
    """The model's score of one transaction."""

    value: float | None
    """Probability of fraud; None when the model failed."""
    failure: str | None = None
    """Failure code, as in the alert's `model_failure`."""


def scores(model: Model, rows: list[list[float]]) -> list[Score]:
    """Score rows of features: all in one call, or row by row if that fails."""
    try:
        probabilities = np.asarray(model.score(np.array(rows)), dtype=float)
        if probabilities.shape == (len(rows),) and ((probabilities >= 0) & (probabilities <= 1)).all():
            return [Score(value) for value in probabilities.tolist()]
    except Exception:
        pass  # scored below, row by row
    return [_score(model, row) for row in rows]


def _score(model: Model, row: list[float]) -> Score:
    try:
        probabilities = np.asarray(model.score(np.array([row])), dtype=float)
    except Exception:
        return Score(None, "raised")
    if probabilities.shape != (1,) or not 0 <= float(probabilities[0]) <= 1:
        return Score(None, "no_probability")
    return Score(float(probabilities[0]))


def json_number(value: float) -> float | None:
    """Return a value for JSON: None for NaN."""
    return None if math.isnan(value) else value


def percentile(model: Model, score: Score) -> float | None:
    """Return the greatest of LEVELS that the score reaches, else 0; None without score or quantiles."""
    if score.value is None or model.quantiles is None:
        return None
    pairs = zip(LEVELS.tolist(), model.quantiles.tolist(), strict=True)
    return max((level for level, least in pairs if least <= score.value), default=0.0)


def reasons(model: Model, row: list[float], score: Score) -> tuple[list[dict[str, Any]], str | None]:
    """Return the features that raised the score most, strongest first; and "unexplained" or None.

    "unexplained": the model could not explain its score.
    """
    if score.value is None:
        return [], None
    try:
        contributions = np.asarray(model.explain(np.array([row])), dtype=float)
    except Exception:
        return [], "unexplained"
    if contributions.shape != (1, len(row)) or not np.isfinite(contributions).all():
        return [], "unexplained"
    raised = sorted((-share, column) for column, share in enumerate(contributions[0].tolist()) if share > 0)
    top_features = [
        {"feature": model.feature_names[column], "value": json_number(row[column]), "contribution": -negative}
        for negative, column in raised[:REASONS]
    ]
    return top_features, None
