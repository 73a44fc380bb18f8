"""Loaded models that score transactions and explain the scores."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from models.errors import ModelError
from models.feature_bins import FeatureBins
from models.percentiles import percentile
from models.rounding import rounded

BLOCK = 256
"""Rows in every call of a third-party predict_proba, so that a row's score does not depend on its batch."""
SURE = 5e-10
"""Distance from 0 and 1 to which probabilities are clipped before they are converted into log-odds: less is
rounded away."""


class Classifier(Protocol):
    """Interface of the classifiers in a Scorer: pure functions; no row affects another row's result.

    All results are rounded (`models.rounding`).
    """

    def score(self, x: np.ndarray) -> np.ndarray:
        """Compute probabilities of fraud: float64[n, f] -> float64[n]."""

    def explain(self, x: np.ndarray) -> np.ndarray:
        """Compute each feature's contribution to the log-odds: float64[n, f] -> float64[n, f]."""


@dataclass(frozen=True)
class Scorer:
    """A registered model with its identity, scores and explanations."""

    name: str
    """Name of the registered model."""
    version: str
    """Version of the registered model."""
    digest: str
    """SHA-256 of the artifact's files, 64 hex digits."""
    feature_names: tuple[str, ...]
    """Columns of x, in order."""
    classifier: Classifier
    """A `models.trees.Trees`, an `Estimator`, or a `Projection` of one of them."""
    quantiles: np.ndarray | None = None
    """`percentiles.quantiles` of the model's evaluation scores; None if not stored."""
    bins: FeatureBins | None = None
    """Training distribution of the features; None if not stored."""
    label_delay_ms: int | None = None
    """Label delay of the training set's merchant label features; None if it is not stored."""

    def percentile(self, score: float) -> float | None:
        """Return the percentile of a score among the evaluation scores, 0 to 100; None if unknown."""
        return None if self.quantiles is None else percentile(self.quantiles, score)

    def score(self, x: np.ndarray) -> np.ndarray:
        """Compute the probability of fraud of each row; a row's score does not depend on its batch.

        Args:
            x: float64[n, f], columns as `feature_names`; NaN where unknown.

        Returns:
            float64[n]; NaN where the model returns no score.

        Raises:
            ModelError: x has another number of columns.
        """
        return self.classifier.score(self._rows(x))

    def explain(self, x: np.ndarray) -> np.ndarray:
        """Compute the contribution of each feature to the log-odds of each row.

        Args:
            x: float64[n, f], as for `score`.

        Returns:
            float64[n, f], log-odds.

        Raises:
            ModelError: x has another number of columns.
        """
        return self.classifier.explain(self._rows(x))

    def on(self, columns: tuple[str, ...]) -> "Scorer":
        """Return the same model for rows with other columns, a superset of its own.

        Args:
            columns: names, in order; columns that the model does not use have contributions of 0.

        Raises:
            ModelError: the model uses a column that is missing.
        """
        if columns == self.feature_names:
            return self
        if missing := sorted(set(self.feature_names) - set(columns)):
            raise ModelError(
                f"{self.name} {self.version} uses {', '.join(missing)}, which is not computed; "
                "run a release that computes it"
            )
        own = np.array([columns.index(name) for name in self.feature_names], dtype=np.intp)
        return replace(
            self,
            feature_names=columns,
            classifier=Projection(self.classifier, own),
            bins=None if self.bins is None else self.bins.on(own.tolist()),
        )

    def _rows(self, x: np.ndarray) -> np.ndarray:
        if x.ndim != 2 or x.shape[1] != len(self.feature_names):
            raise ModelError(
                f"{self.name} {self.version} takes {len(self.feature_names)} features, not {x.shape[1:]}; "
                "score with the feature list it was trained on"
            )
        return np.ascontiguousarray(x, dtype=np.float64)


@dataclass(frozen=True)
class Projection:
    """A classifier that uses a subset of the columns."""

    classifier: Classifier
    own: np.ndarray
    """intp[k]: indexes of the columns that `classifier` takes, in the order in which it takes them."""

    def score(self, x: np.ndarray) -> np.ndarray:
        """Compute probabilities of fraud: float64[n, f] -> float64[n]."""
        return self.classifier.score(np.take(x, self.own, axis=1))

    def explain(self, x: np.ndarray) -> np.ndarray:
        """Compute contributions to the log-odds: float64[n, f] -> float64[n, f], 0 for unused columns."""
        contributions = np.asarray(self.classifier.explain(np.take(x, self.own, axis=1)))
        if contributions.shape != (len(x), self.own.size):
            raise ValueError(f"contributions of shape {contributions.shape} for {self.own.size} features")
        out = np.zeros(x.shape)
        out[:, self.own] = contributions
        return out


@dataclass(frozen=True)
class Estimator:
    """A scikit-learn classifier that scores with its own predict_proba, on one thread."""

    estimator: Any
    """Fitted, with predict_proba; class 1 is fraud."""
    typical: np.ndarray
    """float64[f]: training median of each feature, the reference value of explanations."""

    @cached_property
    def _threads(self) -> Any:
        # cached: finding the thread pools takes milliseconds
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()

    def score(self, x: np.ndarray) -> np.ndarray:
        """Compute probabilities of fraud: float64[n, f] -> float64[n]."""
        out = np.empty(len(x))
        block = np.empty((BLOCK, x.shape[1]))
        with self._threads.limit(limits=1):
            for start in range(0, len(x), BLOCK):
                count = min(BLOCK, len(x) - start)
                block[:count] = x[start : start + count]
                block[count:] = self.typical  # full block: the order of sums may depend on the shape
                out[start : start + count] = self.estimator.predict_proba(block)[:count, 1]
        # sums may also depend on the row's position in the block: only the last bits differ, so round
        scores: np.ndarray = rounded(out)
        return scores

    def explain(self, x: np.ndarray) -> np.ndarray:
        """Compute the log-odds lost when one feature at a time takes its typical value (ablation)."""
        out = np.empty(x.shape)
        whole = _log_odds(self.score(x))
        for column in range(x.shape[1]):
            ablated = x.copy()
            ablated[:, column] = self.typical[column]
            out[:, column] = whole - _log_odds(self.score(ablated))
        contributions: np.ndarray = rounded(out)
        return contributions


def _log_odds(probability: np.ndarray) -> np.ndarray:
    clipped = np.clip(probability, SURE, 1.0 - SURE)
    odds: np.ndarray = np.log(clipped) - np.log1p(-clipped)
    return odds
