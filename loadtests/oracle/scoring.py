"""What the model says of a transaction, or how it failed it: one row at a time wherever there is doubt."""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.percentiles import LEVELS

REASONS = 5
"""An alert names at most this many features."""


class Model(Protocol):
    """What the oracle needs of a model: `models.scoring.Scorer`."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns of x, in order."""
        ...

    @property
    def quantiles(self) -> NDArray[np.float64] | None:
        """The least score of each percentile of `models.percentiles.LEVELS`; None if that is not known."""
        ...

    def score(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of fraud of each row, shape (n,)."""
        ...

    def explain(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much each feature raised the score of each row, shape (n, features)."""
        ...


class Score(NamedTuple):
    """The model's answer about one transaction."""

    value: float | None
    """Probability of fraud; None when the model failed."""
    failure: str | None = None
    """How it failed, as the alert's `model_failure`."""


def scores(model: Model, rows: list[list[float]]) -> list[Score]:
    """The model's answers about rows of features: about all at once, or one by one if that does not work."""
    try:
        found = np.asarray(model.score(np.array(rows)), dtype=float)
        if found.shape == (len(rows),) and ((found >= 0) & (found <= 1)).all():
            return [Score(value) for value in found.tolist()]
    except Exception:
        pass  # it is asked again below, row by row
    return [_score(model, row) for row in rows]


def _score(model: Model, row: list[float]) -> Score:
    try:
        found = np.asarray(model.score(np.array([row])), dtype=float)
    except Exception:
        return Score(None, "raised")
    if found.shape != (1,) or not 0 <= float(found[0]) <= 1:
        return Score(None, "no_probability")
    return Score(float(found[0]))


def known(value: float) -> float | None:
    """As JSON has it: null for NaN."""
    return None if math.isnan(value) else value


def percentile(model: Model, score: Score) -> float | None:
    """The greatest percentile whose least score the score reaches."""
    if score.value is None or model.quantiles is None:
        return None
    pairs = zip(LEVELS.tolist(), model.quantiles.tolist(), strict=True)
    return max((level for level, least in pairs if least <= score.value), default=0.0)


def reasons(model: Model, row: list[float], score: Score) -> tuple[list[dict[str, Any]], str | None]:
    """The features that raised the score most, strongest first; and `unexplained` if the model fails here."""
    if score.value is None:
        return [], None
    try:
        found = np.asarray(model.explain(np.array([row])), dtype=float)
    except Exception:
        return [], "unexplained"
    if found.shape != (1, len(row)) or not np.isfinite(found).all():
        return [], "unexplained"
    raised = sorted((-share, column) for column, share in enumerate(found[0].tolist()) if share > 0)
    told = [
        {"feature": model.feature_names[column], "value": known(row[column]), "contribution": -negative}
        for negative, column in raised[:REASONS]
    ]
    return told, None
