"""ROC and precision-recall curves of a hold-out, as JSON and as an HTML page."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models import html_pages

POINTS = 200
"""Greatest number of points of a curve."""
_TICKS = [(step / 4, f"{step / 4:g}") for step in range(5)]


def curves(fraud: NDArray[np.bool_], scores: NDArray[np.float64]) -> dict[str, dict[str, list[float]]]:
    """Return a JSON object with the curves `roc` and `precision_recall`, each from left to right.

    Args:
        fraud: outcomes with both classes, shape (n,).
        scores: shape (n,).
    """
    from sklearn.metrics import precision_recall_curve, roc_curve

    false_positives, true_positives, _ = roc_curve(fraud, scores)
    precision, recall, _ = precision_recall_curve(fraud, scores)
    return {
        "roc": _points(false_positive_rate=false_positives, true_positive_rate=true_positives),
        "precision_recall": _points(recall=recall[::-1], precision=precision[::-1]),
    }


def page(content: dict[str, dict[str, list[float]]]) -> str:
    """Render the result of `curves` as an HTML page."""
    roc, by_recall = content["roc"], content["precision_recall"]
    plots = (
        _drawn("True positive rate by false positive rate", *roc.values()),
        _drawn("Precision by recall", *by_recall.values()),
    )
    return html_pages.page("Curves of the hold-out", "".join(plots))


def _points(**columns: NDArray[np.float64]) -> dict[str, list[float]]:
    """Select at most POINTS points, including the first and the last; the columns have equal lengths."""
    length = len(next(iter(columns.values())))
    kept = np.unique(np.linspace(0, length - 1, min(length, POINTS)).astype(np.int64))
    return {name: np.round(values[kept], 6).tolist() for name, values in columns.items()}


def _drawn(title: str, x: Sequence[float], y: Sequence[float]) -> str:
    from models.plots import plot  # matplotlib takes a while to import

    return plot(title, x, y, _TICKS, dots=False)
