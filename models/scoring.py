"""A loaded model, ready to score and to explain."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from models.errors import ModelError
from models.percentiles import percentile

BLOCK = 256
"""Rows per call of a foreign predict_proba, always: a row's score must not depend on its batch."""
SURE = 1e-12
"""Probabilities are kept this far from 0 and 1 when they are turned into log-odds."""


class Classifier(Protocol):
    """What a Scorer asks of a model: pure functions of the rows, each row on its own."""

    def score(self, x: np.ndarray) -> np.ndarray:
        """float64[n, f] -> probability of fraud, float64[n]."""

    def explain(self, x: np.ndarray) -> np.ndarray:
        """float64[n, f] -> how much each feature raised the log-odds, float64[n, f]."""


@dataclass(frozen=True)
class Scorer:
    """A registered model: who it is and what it answers."""

    name: str
    """Of the registered model."""
    version: str
    """Of the registered model."""
    digest: str
    """SHA-256 of the artifact's files, 64 hex digits."""
    feature_names: tuple[str, ...]
    """Columns of x, in order."""
    classifier: Classifier
    """Trees, or an Estimator."""
    quantiles: np.ndarray | None = None
    """`percentiles.quantiles` of the scores that the model was judged by; None if that is not known."""

    def percentile(self, score: float) -> float | None:
        """Where a score lies among those that the model was judged by, 0 to 100; None if not known."""
        return None if self.quantiles is None else percentile(self.quantiles, score)

    def score(self, x: np.ndarray) -> np.ndarray:
        """Probability of fraud of each row; a row's score is the same in whatever batch it is.

        Args:
            x: float64[n, f], columns as `feature_names`; NaN where unknown.

        Returns:
            float64[n]; NaN where the model has no answer.

        Raises:
            ModelError: x has another number of columns.
        """
        return self.classifier.score(self._rows(x))

    def explain(self, x: np.ndarray) -> np.ndarray:
        """How much each feature raised (or, negative, lowered) the log-odds of each row.

        Args:
            x: float64[n, f], as for `score`.

        Returns:
            float64[n, f], log-odds.

        Raises:
            ModelError: x has another number of columns.
        """
        return self.classifier.explain(self._rows(x))

    def on(self, columns: tuple[str, ...]) -> "Scorer":
        """The same model, for rows of other columns, among which are its own.

        Args:
            columns: names, in order; contributions of those that the model does not look at are 0.

        Raises:
            ModelError: the model looks at a column that is not there.
        """
        if columns == self.feature_names:
            return self
        if missing := sorted(set(self.feature_names) - set(columns)):
            raise ModelError(
                f"{self.name} {self.version} looks at {', '.join(missing)}, which is not computed; "
                "run a release that computes it"
            )
        own = np.array([columns.index(name) for name in self.feature_names], dtype=np.intp)
        return replace(self, feature_names=columns, classifier=Projection(self.classifier, own))

    def _rows(self, x: np.ndarray) -> np.ndarray:
        if x.ndim != 2 or x.shape[1] != len(self.feature_names):
            raise ModelError(
                f"{self.name} {self.version} takes {len(self.feature_names)} features, not {x.shape[1:]}; "
                "score with the feature list it was trained on"
            )
        return np.ascontiguousarray(x, dtype=np.float64)


@dataclass(frozen=True)
class Projection:
    """A classifier that looks at some of the columns."""

    classifier: Classifier
    own: np.ndarray
    """intp[k]: the columns that it looks at, in its own order."""

    def score(self, x: np.ndarray) -> np.ndarray:
        """float64[n, f] -> probability of fraud, float64[n]."""
        return self.classifier.score(np.take(x, self.own, axis=1))

    def explain(self, x: np.ndarray) -> np.ndarray:
        """float64[n, f] -> contributions to the log-odds, float64[n, f], 0 where it does not look."""
        found = np.asarray(self.classifier.explain(np.take(x, self.own, axis=1)))
        if found.shape != (len(x), self.own.size):
            raise ValueError(f"contributions of shape {found.shape} to {self.own.size} features")
        out = np.zeros(x.shape)
        out[:, self.own] = found
        return out


@dataclass(frozen=True)
class Estimator:
    """Any scikit-learn classifier, scored by its own predict_proba on one thread."""

    estimator: Any
    """Fitted, with predict_proba; class 1 is fraud."""
    typical: np.ndarray
    """float64[f]: a typical value of each feature (the training medians), the reference of explanations."""

    @cached_property
    def _threads(self) -> Any:
        # finding the thread pools takes milliseconds: once
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()

    def score(self, x: np.ndarray) -> np.ndarray:
        """float64[n, f] -> probability of fraud, float64[n]."""
        out = np.empty(len(x))
        block = np.empty((BLOCK, x.shape[1]))
        with self._threads.limit(limits=1):
            for start in range(0, len(x), BLOCK):
                count = min(BLOCK, len(x) - start)
                block[:count] = x[start : start + count]
                block[count:] = self.typical  # matrix kernels may sum in another order for another shape
                out[start : start + count] = self.estimator.predict_proba(block)[:count, 1]
        # ... and for another place in the block: only the last bits differ, so they go
        return np.round(out, 12)

    def explain(self, x: np.ndarray) -> np.ndarray:
        """Ablation: the log-odds lost when a feature takes its typical value, one at a time."""
        out = np.empty(x.shape)
        whole = _log_odds(self.score(x))
        for column in range(x.shape[1]):
            without = x.copy()
            without[:, column] = self.typical[column]
            out[:, column] = whole - _log_odds(self.score(without))
        return out


def _log_odds(probability: np.ndarray) -> np.ndarray:
    kept = np.clip(probability, SURE, 1.0 - SURE)
    odds: np.ndarray = np.log(kept) - np.log1p(-kept)
    return odds
