"""The evaluation report as JSON."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.output_files import replacing
from feature_store.training.archived import present
from models.evaluation.run import FoldResult

HEADLINES = ("auc_roc", "average_precision", "card_precision_100")
"""Metrics by which folds are compared."""
AVERAGED = (*HEADLINES, "precision", "recall", "alert_share", "saved_share", "hours_to_detection")
"""Metrics reported with mean and standard deviation."""


def report(results: list[FoldResult], about: dict[str, Any]) -> dict[str, Any]:
    """Return the report as a JSON object.

    auc_roc, average_precision, card_precision_100, n_test and n_fraud are numbers for one fold and lists for
    several. `mean` and `std` (population standard deviation) are taken over the folds; `folds` has the
    details of each fold. Unknown values are null, and excluded from `mean` and `std`.

    Args:
        about: options of the evaluation; copied into the report.
    """
    folds = [_fold(result) for result in results]
    headlines = {}
    for name in (*HEADLINES, "n_test", "n_fraud"):
        values = [fold[name] for fold in folds]
        headlines[name] = values[0] if len(values) == 1 else values
    by_metric = {name: [fold[name] for fold in folds if fold[name] is not None] for name in AVERAGED}
    return {
        **headlines,
        "mean": {name: float(np.mean(values)) if values else None for name, values in by_metric.items()},
        "std": {name: float(np.std(values)) if values else None for name, values in by_metric.items()},
        "scenarios": _pooled(folds),
        "folds": folds,
        **about,
    }


def digest(paths: list[Path]) -> str:
    """Return the SHA-256 (hex) over the bytes of files, one after another.

    A tail of an archive that was replaced meanwhile counts as what has replaced it.
    """
    sha256 = hashlib.sha256()
    for path, _ in map(present, paths):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                sha256.update(block)
    return sha256.hexdigest()


def write(text: str, path: Path) -> None:
    """Write a file atomically."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _fold(result: FoldResult) -> dict[str, Any]:
    quality, detection = result.quality, result.detection
    windows = result.windows
    return {
        "train_start": windows.train_start.isoformat(),
        "test_start": windows.test_start.isoformat(),
        "test_days": windows.test_days,
        "n_train": result.n_train,
        "n_train_fraud": result.n_train_fraud,
        "n_test": result.n_test,
        "n_fraud": result.n_fraud,
        "auc_roc": _or_null(quality.auc_roc),
        "average_precision": _or_null(quality.average_precision),
        "card_precision_100": result.card_precision,
        "card_precision_100_by_day": list(result.card_precision_by_day),
        "threshold": quality.threshold,
        "alert_share": _or_null(quality.alert_share),
        "precision": _or_null(quality.precision),
        "recall": _or_null(quality.recall),
        "compromised_cards": detection.compromised_cards,
        "detected_cards": detection.detected_cards,
        "hours_to_detection": _or_null(detection.hours_to_detection),
        "frauds_before_detection": _or_null(detection.frauds_before_detection),
        "fraud_amount": round(detection.fraud_amount, 4),
        "saved_amount": round(detection.saved_amount, 4),
        "saved_share": _or_null(detection.saved_share),
        "scenarios": [
            {
                "scenario": recall.scenario,
                "frauds": recall.frauds,
                "alerted": recall.alerted,
                "recall": recall.alerted / recall.frauds,
                "amount": round(recall.amount, 4),
                "alerted_amount": round(recall.alerted_amount, 4),
            }
            for recall in result.scenarios
        ],
    }


def _pooled(folds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum the scenarios over all folds."""
    names = sorted({row["scenario"] for fold in folds for row in fold["scenarios"]})
    pooled = []
    for name in names:
        rows = [row for fold in folds for row in fold["scenarios"] if row["scenario"] == name]
        frauds, alerted = sum(row["frauds"] for row in rows), sum(row["alerted"] for row in rows)
        pooled.append({"scenario": name, "frauds": frauds, "alerted": alerted, "recall": alerted / frauds})
    return pooled


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value
