"""Features, score and rules of one transaction, without Kafka."""

import math
from pathlib import Path
from typing import Any

import orjson

from loadtests.compare.quix.features import UNITS, Row, accept, compute, is_repetition

STEPS = 1e9
"""Steps of a rounded score in 1."""


class Model:
    """The exported model and policy (loadtests/compare/exported.py)."""

    def __init__(self, file: Path) -> None:
        exported = orjson.loads(file.read_bytes())
        self.threshold: float = exported["policy"]["threshold"]
        self.max_count_5m: int = exported["policy"]["max_count_5m"]
        self.centroids: dict[str, list[float]] = exported["centroids"]
        self._names: list[str] = exported["features"]
        trees = exported["trees"]
        self._baseline, self._roots, self._values = trees["baseline"], trees["roots"], trees["values"]
        nodes = zip(trees["columns"], trees["thresholds"], trees["children"], strict=True)
        self._nodes: list[tuple[int, float | None, int]] = list(nodes)

    def score(self, features: dict[str, float]) -> float:
        """Return the probability of fraud, rounded to 9 decimal places."""
        values = [features[name] for name in self._names]
        row, nodes, leaves, total = [*values, *(-value for value in values)], self._nodes, self._values, 0.0
        total += self._baseline
        for at in self._roots:
            column, threshold, child = nodes[at]
            while threshold is not None:  # a leaf has none
                at = child + (row[column] > threshold)
                column, threshold, child = nodes[at]
            total += leaves[at]
        return round(1.0 / (1.0 + math.exp(-total)) * STEPS) / STEPS


def decide(model: Model, card: Row, tx: Row, profile: Row | None) -> Row | None:
    """Decide a transaction and add it to its card's history; for a repeated one, only return None.

    Args:
        card: the history; updated in place.
        tx: the fields of the transaction contract and `arrival`, ms; `units` is added.
        profile: the bank's row, or None.
    """
    tx["units"] = round(tx["amount"] * UNITS)
    if is_repetition(card, tx):
        return None
    features = compute(card, tx, profile, model.centroids)
    accept(card, tx)
    score = model.score(features)
    status = None if profile is None else profile["status"]
    rules = [
        name
        for name, fires in (
            ("score", score >= model.threshold),
            ("velocity_5m", max(features["count_5m"], features["arrivals_5m"]) > model.max_count_5m),
            ("blocked_card", status == "blocked"),
            ("closed_card", status == "closed"),
        )
        if fires
    ]
    return {"score": score, "rules": rules, "features": features}


def alert(model: Model, tx: Row, decision: Row) -> Row:
    """Return the alert of a decision in which a rule fired, for JSON."""
    declined = {"blocked_card", "closed_card"} & set(decision["rules"])
    return {
        "transaction_id": tx["transaction_id"],
        "card_id": tx["card_id"],
        "merchant_id": tx["merchant_id"],
        "amount": tx["units"] / UNITS,
        "country": tx["country"],
        "event_time": tx["event_time"],
        "arrival_time": tx["arrival"],
        "decision": "decline" if declined else "review",
        "rules": decision["rules"],
        "score": decision["score"],
        "threshold": model.threshold,
        "features": json_features(decision["features"]),
    }


def json_features(features: dict[str, float]) -> dict[str, Any]:
    """Convert features for JSON: None for NaN, numbers for booleans."""
    return {name: None if value != value else value + 0 for name, value in features.items()}
