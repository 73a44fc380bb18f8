"""Training and evaluation, fold by fold."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from feature_store.catalogue import DAY_MS
from models.algorithms import Learner
from models.evaluation.history import History, Source, read
from models.evaluation.metrics import (
    Detection,
    ScenarioRecall,
    ScoredTransactions,
    by_scenario,
    card_precision,
    detection,
)
from models.evaluation.protocol import Fold, Windows, split
from models.rounding import rounded
from models.thresholds import threshold_for_budget
from models.train import Quality, evaluate

TOP_CARDS = 100
"""Cards that investigators can check in a day: the k of the Fraud Detection Handbook."""


@dataclass(frozen=True)
class FoldResult:
    """A model's quality on the test window of one fold."""

    windows: Windows
    n_train: int
    n_train_fraud: int
    """Number of training rows known as fraud when the test window begins."""
    n_test: int
    n_fraud: int
    quality: Quality
    """Quality at the lowest threshold that keeps the alert budget; the threshold is chosen on the test scores
    themselves, so this is not a forecast."""
    card_precision_by_day: tuple[float, ...]
    detection: Detection
    scenarios: tuple[ScenarioRecall, ...]
    """Empty if the file has no scenarios."""

    @property
    def card_precision(self) -> float:
        """Mean card precision at TOP_CARDS over the test days."""
        return float(np.mean(self.card_precision_by_day))


def run(
    source: Source,
    windows: Windows,
    folds: int,
    learner: Learner,
    alert_budget: float,
    progress: Callable[[int], None] = lambda rows: None,
) -> tuple[History, list[FoldResult]]:
    """Read a history, and train and evaluate a new model on each fold.

    Args:
        windows: windows of fold 0.
        alert_budget: share of the test transactions that may become alerts, 0 to 1.
    """
    last = windows.fold(folds - 1)
    end = last.test_start + timedelta(last.test_days)
    history = read(source, windows.train_start, end, progress)
    return history, list(judge(history, windows, folds, learner, alert_budget))


def judge(
    history: History, windows: Windows, folds: int, learner: Learner, alert_budget: float
) -> Iterator[FoldResult]:
    """Train and evaluate fold by fold; the last four arguments are as for `run`."""
    fraud = history.known.fraud(history.arrival.size)
    # all splits first: a history that is too short fails before the first model is trained
    splits = [split(windows.fold(number), history.day, history.card, fraud) for number in range(folds)]
    for fold in splits:
        scores = rounded(fit(history, fold, learner).predict_proba(history.features[fold.test])[:, 1])
        yield assess(history, fold, scores, alert_budget)


def fit(history: History, fold: Fold, learner: Learner) -> Any:
    """Fit a scikit-learn classifier to the training window of a fold."""
    return learner.fit(history.features[fold.train], _known_frauds(history, fold))


def _known_frauds(history: History, fold: Fold) -> np.ndarray:
    """Return which transactions of the training window are known as fraud when the test window begins."""
    return history.known.fraud_at(fold.windows.first_test_day * DAY_MS, history.arrival.size)[fold.train]


def assess(history: History, fold: Fold, scores: np.ndarray, alert_budget: float) -> FoldResult:
    """Evaluate the scores of a fold's test window.

    Args:
        scores: float64[len(fold.test)].
        alert_budget: share of the test transactions that may become alerts, 0 to 1.
    """
    train, test = fold.train, fold.test
    outcome = _known_frauds(history, fold)
    fraud = history.known.fraud(history.arrival.size)
    scored = ScoredTransactions(
        history.day[test],
        history.card[test],
        history.arrival[test],
        history.amount[test],
        fraud[test],
        scores,
    )
    quality = evaluate(scored.fraud, scores, threshold_for_budget(scores, alert_budget))
    scenarios: list[ScenarioRecall] = []
    if history.scenario is not None:
        scenarios = by_scenario(scored, history.scenario[test], quality.threshold)
    return FoldResult(
        fold.windows,
        train.size,
        int(outcome.sum()),
        test.size,
        int(scored.fraud.sum()),
        quality,
        tuple(card_precision(scored, TOP_CARDS).tolist()),
        detection(scored, quality.threshold),
        tuple(scenarios),
    )
