"""Thresholds for scores: for a budget of alerts, and for the least cost."""

import numpy as np


def threshold_for_budget(scores: np.ndarray, share: float) -> float:
    """Return the lowest threshold with at most `share` of the transactions at or above it.

    Exception: if more than `share` have a score of 1, the threshold is 1 all the same.

    Args:
        scores: float64[n].
        share: alert budget, 0 to 1.
    """
    allowed = int(np.floor(len(scores) * share))
    if allowed >= len(scores):
        return 0.0
    # just above the first score that would exceed the budget
    return _just_above(np.sort(scores)[::-1][allowed])


def threshold_for_cost(scores: np.ndarray, fraud: np.ndarray, amount: np.ndarray, alert_cost: float) -> float:
    """Return the threshold at which alerts and missed frauds cost least; of several, the highest.

    An alert costs `alert_cost` and stops the fraud, if there is one; a missed fraud costs its amount.
    Thresholds are compared on these transactions, so the result is reliable only with many frauds.

    Args:
        scores: float64[n], at least one.
        fraud: bool[n].
        amount: float64[n], in the currency of `alert_cost`.
    """
    order = np.argsort(-scores, kind="stable")
    saved = np.cumsum(np.where(fraud, amount, 0.0)[order]) - alert_cost * np.arange(1, len(scores) + 1)
    # equal scores are alerted together, or not at all
    ranked = scores[order]
    last_of_equals = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    best = last_of_equals[np.argmax(saved[last_of_equals])]
    # no threshold lies above a score of 1
    return float(ranked[best]) if saved[best] > 0 or ranked[0] >= 1.0 else _just_above(ranked[0])


def _just_above(score: float) -> float:
    return float(min(np.nextafter(score, np.inf), 1.0))
