"""Train a classifier and measure it as it will be used: on the future, with labels that come late."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from models.errors import ModelError

DAY_MS = 24 * 3_600_000
LABEL_DELAY_MS = 7 * DAY_MS
"""How long it takes until an outcome is known: the gap between training and hold-out."""


def train(
    x: np.ndarray,
    y: np.ndarray,
    *,
    seed: int = 0,
    iterations: int = 100,
    leaves: int = 8,
    learning_rate: float = 0.06,
    feature_share: float = 1.0,
) -> Any:
    """Fit gradient-boosted trees; the same data and seed give the same model.

    Numeric columns are binned at 255 quantiles, so no cut falls inside the top 0.4 % of a column. A feature
    whose tail matters needs a second column with few distinct values there (`amount_tail` of the catalogue).

    Args:
        x: float64[n, f]; NaN where unknown.
        y: bool or int[n], 1 where fraud.
        seed: of the binning's subsample, and of the draws for `feature_share`.
        iterations: number of trees.
        leaves: of each tree.
        learning_rate: share of each tree's correction that is applied.
        feature_share: share of the columns, drawn anew, that each split may choose from, above 0 to 1.

    Returns:
        A fitted sklearn HistGradientBoostingClassifier.

    Raises:
        ModelError: one class is missing.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    labels = np.asarray(y).astype(np.int64)
    if not 0 < labels.sum() < len(labels):
        raise ModelError(
            f"{int(labels.sum())} frauds in {len(labels)} transactions; train on history with both"
        )
    # scikit-learn cannot bin a column without any value; a constant one is never split on
    known = np.where(np.isnan(x).all(axis=0), 0.0, x)
    estimator = HistGradientBoostingClassifier(
        max_iter=iterations,
        max_leaf_nodes=leaves,
        learning_rate=learning_rate,
        max_features=feature_share,
        early_stopping=False,  # a random hold-out would leak the future
        random_state=seed,
    )
    return estimator.fit(known, labels)


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by."""

    train: np.ndarray
    """bool[n]: before the hold-out by at least the label delay."""
    holdout: np.ndarray
    """bool[n]: the newest rows."""


def split_by_time(event_time: np.ndarray, *, share: float = 0.25, gap_ms: int = LABEL_DELAY_MS) -> Split:
    """Keep the newest share of the time span to judge by, and the label delay before it unused.

    Where the history is too short for the gap, it shrinks to a tenth of the span: better than no measure.

    Args:
        event_time: int64[n], ms.
        share: of the time span.
        gap_ms: between the last row to train on and the first to judge by.
    """
    first, last = int(event_time.min()), int(event_time.max())
    cut = last - int((last - first) * share)
    gap = min(gap_ms, (last - first) // 10)
    return Split(train=event_time < cut - gap, holdout=event_time >= cut)


@dataclass(frozen=True)
class Quality:
    """How well scores rank frauds, and what a threshold would cost."""

    auc_roc: float
    """Area under the ROC curve; NaN without both classes."""
    average_precision: float
    """Area under precision over recall; NaN without both classes."""
    threshold: float
    """The threshold judged."""
    alert_share: float
    """Share of transactions with a score at or above it."""
    precision: float
    """Share of frauds among them; NaN when there are none."""
    recall: float
    """Share of frauds that are among them; NaN without frauds."""

    def metrics(self) -> dict[str, float]:
        """All of it that is known, by name, for a tracking server."""
        return {name: value for name, value in vars(self).items() if value == value}


def evaluate(y: np.ndarray, scores: np.ndarray, threshold: float) -> Quality:
    """Judge scores against outcomes.

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


def threshold_for_budget(scores: np.ndarray, share: float) -> float:
    """The lowest threshold with at most `share` of the transactions at or above it.

    Args:
        scores: float64[n].
        share: alert budget, 0 to 1.
    """
    allowed = int(np.floor(len(scores) * share))
    if allowed >= len(scores):
        return 0.0
    # at or above a value just over the first score that is one too many
    ranked = np.sort(scores)[::-1]
    return float(min(np.nextafter(ranked[allowed], np.inf), 1.0))
