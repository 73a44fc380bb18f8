"""Learning algorithms: trees take missing values as they are, logistic regression imputes them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from models.errors import ModelError
from models.train import class_weight, train


class Algorithm(StrEnum):
    """Learning algorithm."""

    GRADIENT_BOOSTING = "gradient-boosting"
    RANDOM_FOREST = "random-forest"
    LOGISTIC_REGRESSION = "logistic-regression"


FOREST_DEPTH = 20
"""Greatest depth of a random forest's trees, as in the Fraud Detection Handbook."""


@dataclass(frozen=True)
class Learner:
    """An algorithm and its options; options of other algorithms are ignored."""

    algorithm: Algorithm = Algorithm.GRADIENT_BOOSTING
    seed: int = 0
    iterations: int = 300
    """Number of trees."""
    leaves: int = 6
    """Greatest number of leaves of each tree of gradient boosting."""
    learning_rate: float = 0.03
    """Learning rate of gradient boosting."""
    feature_share: float = 0.15
    """Share of the features that each split of gradient boosting may use, drawn at random."""
    fraud_weight: float = 1.0
    """Weight of a fraud in training; a genuine transaction has weight 1. Scores are probabilities only if a
    fraud has weight 1, too."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Any:
        """Fit a scikit-learn classifier; the same data and seed give the same classifier.

        Args:
            x: float64[n, f]; NaN where unknown.
            y: bool or int[n], 1 where fraud.

        Raises:
            ModelError: one class is missing.
        """
        if self.algorithm is Algorithm.GRADIENT_BOOSTING:
            return train(
                x,
                y,
                seed=self.seed,
                iterations=self.iterations,
                leaves=self.leaves,
                learning_rate=self.learning_rate,
                feature_share=self.feature_share,
                fraud_weight=self.fraud_weight,
            )
        frauds = int(np.asarray(y).astype(bool).sum())
        if not 0 < frauds < len(y):
            raise ModelError(f"{frauds} frauds in {len(y)} transactions; train on history with both classes")
        forest = self.algorithm is Algorithm.RANDOM_FOREST
        estimator = self._forest() if forest else self._logistic()
        return estimator.fit(x, np.asarray(y).astype(np.int64))

    def _forest(self) -> Any:
        from sklearn.ensemble import RandomForestClassifier

        # without imputation: scikit-learn sends missing values to the better side of each split
        return RandomForestClassifier(
            n_estimators=self.iterations,
            max_depth=FOREST_DEPTH,
            random_state=self.seed,
            class_weight=class_weight(self.fraud_weight),
        )

    def _logistic(self) -> Any:
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
            StandardScaler(),
            LogisticRegression(max_iter=1_000, class_weight=class_weight(self.fraud_weight)),
        )


QUICK = Learner(iterations=100, leaves=8, learning_rate=0.06, feature_share=1.0)
"""A learner with a third of the default number of trees, for demos, benchmarks and tests."""
