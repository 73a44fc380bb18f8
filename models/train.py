"""Hold-out of a history, and evaluation as in production: on later data, with delayed labels."""

from dataclasses import dataclass

import numpy as np

from feature_store.catalogue import DAY_MS

LABEL_DELAY_MS = 7 * DAY_MS
"""Time until an outcome is known: the gap between training and hold-out."""


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
