"""The alert: its fields, in the order in which they are written."""

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.catalogue import NAMES
from feature_store.layout import BEGINNING, STATUSES, UNITS_PER_CURRENCY, country_name
from models.policy import alert_id
from models.rollouts.machine import Decides
from streaming_job.decode.transactions import unquote
from streaming_job.progress.outcome import Alert

REASONS = 5
"""How many features an alert names as reasons at most."""


def reasons(features: NDArray[np.float64], contributions: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The features that raised the score most, strongest first; equal ones in column order."""
    strongest = np.argsort(-contributions, kind="stable")[:REASONS]
    return [
        {"feature": NAMES[c], "value": float(features[c]), "contribution": float(contributions[c])}
        for c in strongest.tolist()
        if contributions[c] > 0
    ]


def build(
    quote: bytes,
    record: np.void,
    topic: str,
    *,
    decision: str,
    rules: tuple[str, ...],
    score: float | None,
    model_failure: str | None,
    rollout: Decides,
    features: NDArray[np.float64],
    contributions: NDArray[np.float64],
    profile: np.void | None,
    suspicious_day: int,
    suspicious_total: int,
    late: bool,
    conflicting: bool,
) -> Alert:
    """An alert of contract alert.v1; the same inputs give the same bytes.

    Args:
        quote: what is told of the transaction word for word (`transactions.quote`).
        record: the transaction (TRANSACTION).
        topic: its topic.
        decision: review or decline.
        rules: those that fired.
        score: None when the model failed.
        model_failure: how it failed (`models.guarded`); None when it did not.
        rollout: the one that decided.
        features: shape (len(FEATURES),).
        contributions: what each feature added to the log-odds, shape (len(FEATURES),).
        profile: the version in force (PROFILE), None without one.
        suspicious_day: alerts of the card in the last 24 clock hours, this one included.
        suspicious_total: alerts of the card, this one included.
        late: whether a later event of the card had been decided before.
        conflicting: whether its id had been accepted before, with other content.
    """
    card_id, transaction_id, merchant_id, currency = unquote(quote)
    country = country_name(int(record["country"]))
    alert = {
        "schema_version": 1,
        "alert_id": alert_id(
            card_id,
            transaction_id,
            event_time=int(record["time"]),
            units=int(record["amount"]),
            merchant_id=merchant_id,
            country=country,
        ),
        "card_id": card_id,
        "transaction_id": transaction_id,
        "merchant_id": merchant_id,
        "amount": int(record["amount"]) / UNITS_PER_CURRENCY,
        "currency": currency,
        "country": country,
        "event_time": int(record["time"]),
        "arrival_time": int(record["arrival"]),
        "decision": decision,
        "rules": rules,
        "score": score,
        "model_failure": model_failure,
        "threshold": rollout.policy.threshold,
        "reasons": reasons(features, contributions),
        "features": dict(zip(NAMES, features.tolist(), strict=True)),
        "model": {
            "name": rollout.model.name,
            "version": rollout.model.version,
            "digest": rollout.model.digest,
        },
        "rollout_id": rollout.rollout_id,
        "profile": None if profile is None else _profile(profile, int(record["arrival"])),
        "suspicious_count": {"day": suspicious_day, "total": suspicious_total},
        "late": late,
        "conflicting_repetition": conflicting,
        "source": {"topic": topic, "partition": int(record["partition"]), "offset": int(record["offset"])},
    }
    return Alert(int(record["partition"]), int(record["offset"]), card_id.encode(), orjson.dumps(alert))


def _profile(profile: np.void, seen_at: int) -> dict[str, Any]:
    known_from = int(profile["arrival"])
    return {
        "status": STATUSES[int(profile["status"])],
        "partition": int(profile["partition"]),
        "offset": int(profile["offset"]),
        # a first snapshot's row counts as known from the beginning
        "arrival_time": max(known_from, 0),
        "age_ms": None if known_from == BEGINNING else max(seen_at - known_from, 0),
    }
