"""Learning algorithms: trees take missing values as they are, logistic regression imputes them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from typer import Option

from models.errors import ModelError


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

    algorithm: Annotated[Algorithm, Option(help="Algorithm to fit")] = Algorithm.GRADIENT_BOOSTING
    iterations: Annotated[int, Option(min=1, help="Number of trees")] = 300
    leaves: Annotated[int, Option(min=2, help="Greatest number of leaves of each boosted tree")] = 6
    learning_rate: Annotated[float, Option(min=0.0001, max=10, help="Learning rate of gradient boosting")] = (
        0.03
    )
    feature_share: Annotated[
        float,
        Option(
            min=0.01,
            max=1,
            help="Share of the features that each split of gradient boosting may use, drawn at random",
        ),
    ] = 0.15
    fraud_weight: Annotated[
        float,
        Option(
            min=0.0001,
            max=1e6,
            help="Weight of a fraud in training; scores are probabilities only with weight 1",
        ),
    ] = 1.0
    """A genuine transaction has weight 1."""
    seed: Annotated[
        int, Option(min=0, max=2**32 - 1, help="The same data, options and seed give the same result")
    ] = 0

    def fit(self, x: np.ndarray, y: np.ndarray) -> Any:
        """Fit a scikit-learn classifier; the same data and seed give the same classifier.

        Gradient boosting bins a column of more than 255 distinct values at quantiles, into 255 bins of 0.4 %
        of the rows each, so no split falls inside its top 0.4 %. A feature whose tail matters needs a second
        column of at most 255 distinct values, each of which has a bin of its own (`amount_tail` of the
        catalogue).

        Args:
            x: float64[n, f]; NaN where unknown.
            y: bool or int[n], 1 where fraud.

        Raises:
            ModelError: one class is missing.
        """
        labels = np.asarray(y).astype(np.int64)
        if not 0 < labels.sum() < len(labels):
            raise ModelError(
                f"{labels.sum()} frauds in {len(labels)} transactions; train on history with both classes"
            )
        if self.algorithm is Algorithm.RANDOM_FOREST:
            return self._forest().fit(x, labels)
        if self.algorithm is Algorithm.LOGISTIC_REGRESSION:
            return self._logistic().fit(x, labels)
        # scikit-learn cannot bin a column without any value: make it a constant column, which no tree splits
        return self._boosting().fit(np.where(np.isnan(x).all(axis=0), 0.0, x), labels)

    def _boosting(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(
            max_iter=self.iterations,
            max_leaf_nodes=self.leaves,
            learning_rate=self.learning_rate,
            max_features=self.feature_share,
            class_weight=self._class_weight,
            early_stopping=False,  # a random hold-out would leak the future
            random_state=self.seed,
        )

    def _forest(self) -> Any:
        from sklearn.ensemble import RandomForestClassifier

        # without imputation: scikit-learn sends missing values to the better side of each split
        return RandomForestClassifier(
            n_estimators=self.iterations,
            max_depth=FOREST_DEPTH,
            random_state=self.seed,
            class_weight=self._class_weight,
        )

    def _logistic(self) -> Any:
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
            StandardScaler(),
            LogisticRegression(max_iter=1_000, class_weight=self._class_weight),
        )

    @property
    def _class_weight(self) -> dict[int, float] | None:
        """Scikit-learn's `class_weight`; None, its default, for weight 1."""
        return None if self.fraud_weight == 1.0 else {0: 1.0, 1: self.fraud_weight}


QUICK = Learner(iterations=100, leaves=8, learning_rate=0.06, feature_share=1.0)
"""A learner with a third of the default number of trees, for demos, benchmarks and tests."""
