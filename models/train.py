"""Training of a classifier, and its evaluation as in production: on later data, with delayed labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from feature_store.catalogue import DAY_MS
from models.errors import ModelError

LABEL_DELAY_MS = 7 * DAY_MS
"""Time until an outcome is known: the gap between training and hold-out."""


def train(
    x: np.ndarray,
    y: np.ndarray,
    *,
    seed: int = 0,
    iterations: int = 100,
    leaves: int = 8,
    learning_rate: float = 0.06,
    feature_share: float = 1.0,
    fraud_weight: float = 1.0,
) -> Any:
    """Fit gradient-boosted trees; the same data and seed give the same model.

    A column of more than 255 distinct values is binned at quantiles, into 255 bins of 0.4 % of the rows each,
    so no split falls inside its top 0.4 %. A feature whose tail matters needs a second column of at most 255
    distinct values, each of which has a bin of its own (`amount_tail` of the catalogue).

    Args:
        x: float64[n, f]; NaN where unknown.
        y: bool or int[n], 1 where fraud.
        seed: seed of the binning's subsample, and of the draws for `feature_share`.
        iterations: number of trees.
        leaves: greatest number of leaves of each tree.
        learning_rate: share of each tree's correction that is applied.
        feature_share: share of the columns that each split may use, drawn at random; above 0, up to 1.
        fraud_weight: weight of a fraud; a genuine transaction has 1.

    Returns:
        A fitted sklearn HistGradientBoostingClassifier.

    Raises:
        ModelError: one class is missing.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    labels = np.asarray(y).astype(np.int64)
    if not 0 < labels.sum() < len(labels):
        raise ModelError(
            f"{int(labels.sum())} frauds in {len(labels)} transactions; train on history with both classes"
        )
    # scikit-learn cannot bin a column without any value: make it a constant column, which no tree splits
    binnable = np.where(np.isnan(x).all(axis=0), 0.0, x)
    estimator = HistGradientBoostingClassifier(
        max_iter=iterations,
        max_leaf_nodes=leaves,
        learning_rate=learning_rate,
        max_features=feature_share,
        class_weight=class_weight(fraud_weight),
        early_stopping=False,  # a random hold-out would leak the future
        random_state=seed,
    )
    return estimator.fit(binnable, labels)


def class_weight(fraud_weight: float) -> dict[int, float] | None:
    """Return scikit-learn's `class_weight` for the weight of a fraud; None, the default, for weight 1."""
    return None if fraud_weight == 1.0 else {0: 1.0, 1: fraud_weight}


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to evaluate on."""

    train: np.ndarray
    """bool[n]: rows that precede the start of the hold-out by more than the gap."""
    holdout: np.ndarray
    """bool[n]: the newest rows."""


def split_by_time(event_time: np.ndarray, *, share: float = 0.25, gap_ms: int = LABEL_DELAY_MS) -> Split:
    """Hold out the newest share of the time span; before it, leave a gap for the label delay.

    In a short history the gap is a tenth of the time span, if that is less than `gap_ms`.

    Args:
        event_time: times of the rows, int64[n], ms; `models.pipeline` passes arrivals.
        share: hold-out share of the time span.
        gap_ms: greatest length of the gap.
    """
    first, last = int(event_time.min()), int(event_time.max())
    cut = last - int((last - first) * share)
    gap = min(gap_ms, (last - first) // 10)
    return Split(train=event_time < cut - gap, holdout=event_time >= cut)


@dataclass(frozen=True)
class Quality:
    """Quality of scores: ranking of frauds, and precision and recall at a threshold."""

    auc_roc: float
    """Area under the ROC curve; NaN without both classes."""
    average_precision: float
    """Area under the precision-recall curve, as average precision; NaN without both classes."""
    threshold: float
    """The evaluated threshold."""
    alert_share: float
    """Share of transactions with a score at or above the threshold (alerts)."""
    precision: float
    """Share of frauds among the alerts; NaN without alerts."""
    recall: float
    """Share of frauds that are alerts; NaN without frauds."""

    def metrics(self) -> dict[str, float]:
        """Return all values that are not NaN, by name, for a tracking server."""
        return {name: value for name, value in vars(self).items() if value == value}


def evaluate(y: np.ndarray, scores: np.ndarray, threshold: float) -> Quality:
    """Evaluate scores against outcomes.

    Args:
        y: bool or int[n], 1 where fraud.
        scores: float64[n].
        threshold: alerts are scores at or above it.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    labels = np.asarray(y).astype(bool)
    alerts = scores >= threshold
    both = bool(labels.any()) and not bool(labels.all())
    nan = float("nan")
    caught = float((alerts & labels).sum())
    return Quality(
        auc_roc=float(roc_auc_score(labels, scores)) if both else nan,
        average_precision=float(average_precision_score(labels, scores)) if both else nan,
        threshold=threshold,
        alert_share=float(alerts.mean()) if len(alerts) else nan,
        precision=caught / float(alerts.sum()) if alerts.any() else nan,
        recall=caught / float(labels.sum()) if labels.any() else nan,
    )
