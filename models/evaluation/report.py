"""The report of an evaluation as JSON."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.training_run import replacing
from models.evaluation.run import FoldResult

HEADLINES = ("auc_roc", "average_precision", "card_precision_100")
"""What folds are compared by."""
AVERAGED = (*HEADLINES, "precision", "recall", "alert_share", "saved_share", "hours_to_detection")
"""What means and standard deviations are given of."""
NOT_STREAMED = (
    "Merchant label features are computed from files only: the streaming job does not compute them yet, so "
    "no model that uses them can be rolled out."
)


def report(results: list[FoldResult], about: dict[str, Any]) -> dict[str, Any]:
    """The report as a JSON object.

    auc_roc, average_precision, card_precision_100, n_test and n_fraud are numbers for one fold and lists for
    several; `mean` and `std` (of the population) are over the folds, `folds` has all there is of each. What
    is unknown is null and left out of means.

    Args:
        results: one or more folds.
        about: how they came about; goes in as it is.
    """
    folds = [_fold(result) for result in results]
    tops = {}
    for name in (*HEADLINES, "n_test", "n_fraud"):
        values = [fold[name] for fold in folds]
        tops[name] = values[0] if len(values) == 1 else values
    known = {name: [fold[name] for fold in folds if fold[name] is not None] for name in AVERAGED}
    return {
        **tops,
        "mean": {name: float(np.mean(values)) if values else None for name, values in known.items()},
        "std": {name: float(np.std(values)) if values else None for name, values in known.items()},
        "scenarios": _pooled(folds),
        "folds": folds,
        **about,
    }


def digest(paths: list[Path]) -> str:
    """SHA-256 (hex) over the bytes of files, one after another."""
    hashed = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                hashed.update(block)
    return hashed.hexdigest()


def write(text: str, path: Path) -> None:
    """Write a file whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _fold(result: FoldResult) -> dict[str, Any]:
    quality, found = result.quality, result.detection
    windows = result.windows
    return {
        "train_start": windows.train_start.isoformat(),
        "test_start": windows.test_start.isoformat(),
        "test_days": windows.test_days,
        "n_train": result.n_train,
        "n_train_fraud": result.n_train_fraud,
        "n_test": result.n_test,
        "n_fraud": result.n_fraud,
        "auc_roc": _known(quality.auc_roc),
        "average_precision": _known(quality.average_precision),
        "card_precision_100": result.card_precision,
        "card_precision_100_by_day": list(result.card_precision_by_day),
        "threshold": quality.threshold,
        "alert_share": _known(quality.alert_share),
        "precision": _known(quality.precision),
        "recall": _known(quality.recall),
        "compromised_cards": found.compromised_cards,
        "detected_cards": found.detected_cards,
        "hours_to_detection": _known(found.hours_to_detection),
        "frauds_before_detection": _known(found.frauds_before_detection),
        "fraud_amount": round(found.fraud_amount, 4),
        "saved_amount": round(found.saved_amount, 4),
        "saved_share": _known(found.saved_share),
        "scenarios": [
            {
                "scenario": one.scenario,
                "frauds": one.frauds,
                "alerted": one.alerted,
                "recall": one.alerted / one.frauds,
                "amount": round(one.amount, 4),
                "alerted_amount": round(one.alerted_amount, 4),
            }
            for one in result.scenarios
        ],
    }


def _pooled(folds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scenarios over all folds together."""
    names = sorted({one["scenario"] for fold in folds for one in fold["scenarios"]})
    pooled = []
    for name in names:
        of = [one for fold in folds for one in fold["scenarios"] if one["scenario"] == name]
        frauds, alerted = sum(one["frauds"] for one in of), sum(one["alerted"] for one in of)
        pooled.append({"scenario": name, "frauds": frauds, "alerted": alerted, "recall": alerted / frauds})
    return pooled


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
