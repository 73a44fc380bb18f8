"""The alert: its fields, in the order in which they are written."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.layout import BEGINNING, STATUSES, UNITS_PER_CURRENCY, country_name
from feature_store.merchants.catalogue import ALL_NAMES
from models.policy import DECLINE, REVIEW, alert_id
from models.rollouts.machine import Decides
from streaming_job.decide.ruling import Ruling, digest_of
from streaming_job.decode.transactions import unquote
from streaming_job.progress.outcome import Alert

REASONS = 5
"""How many features an alert names as reasons at most."""


def reasons(features: NDArray[np.float64], contributions: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The features that raised the score most, strongest first; equal ones in column order."""
    strongest = np.argsort(-contributions, kind="stable")[:REASONS]
    return [
        {"feature": ALL_NAMES[c], "value": float(features[c]), "contribution": float(contributions[c])}
        for c in strongest.tolist()
        if contributions[c] > 0
    ]


@dataclass(frozen=True)
class Told:
    """What a transaction's alerts tell of it, whoever decides."""

    quote: bytes
    """What is told of the transaction word for word (`transactions.quote`)."""
    record: np.void
    """The transaction (TRANSACTION)."""
    topic: str
    """Its topic."""
    profile: np.void | None
    """The version in force (PROFILE), None without one."""
    late: bool
    """Whether a later event of the card had been decided before."""
    conflicting: bool
    """Whether its id had been accepted before, with other content."""
    suspicious_day: int
    """Alerts of the card in the last 24 clock hours, this one included."""
    suspicious_total: int
    """Alerts of the card, this one included."""


def build(
    told: Told,
    ruling: Ruling,
    row: int,
    contributions: NDArray[np.float64],
    failure: str | None,
    held_since: int = 0,
) -> tuple[Alert, tuple[str, ...]]:
    """An alert of contract alert.v1; the same inputs give the same bytes.

    Args:
        told: of its transaction.
        ruling: of the plan by which it was decided.
        row: of the transaction in the ruling.
        contributions: what each feature added to the log-odds, shape (len(FEATURES),).
        failure: how the deciding model failed (`models.guarded`); None when it did not.
        held_since: of an alert that is held back the arrival of the card's last one sent, ms; else 0.

    Returns:
        The alert, and the rules that fired.
    """
    record, deciding = told.record, ruling.deciding(row)
    who, verdicts = deciding.who, deciding.verdicts
    rules = verdicts.rules(row, told.suspicious_day)
    card_id, transaction_id, merchant_id, currency = unquote(told.quote)
    features = ruling.features[row]
    alert = {
        "schema_version": 1,
        "alert_id": name_of(told),
        "card_id": card_id,
        "transaction_id": transaction_id,
        "merchant_id": merchant_id,
        "amount": int(record["amount"]) / UNITS_PER_CURRENCY,
        "currency": currency,
        "country": country_name(int(record["country"])),
        "event_time": int(record["time"]),
        "arrival_time": int(record["arrival"]),
        "decision": DECLINE if verdicts.declines(rules) else REVIEW,
        "rules": rules,
        "score": deciding.score(row),
        "score_percentile": deciding.percentile(row),
        "model_failure": failure,
        "challenger_failure": ruling.challenger_failure(row),
        "threshold": who.policy.threshold,
        "policy": digest_of(who.policy),
        "reasons": reasons(features, contributions),
        # without merchant facts there are the first columns only
        "features": dict(zip(ALL_NAMES, features.tolist(), strict=False)),
        "model": model_of(who),
        "rollout_id": who.rollout_id,
        "rollout_seq": who.seq,
        "role": who.role,
        "membership": ruling.member(row),
        "profile": None if told.profile is None else _profile(told.profile, int(record["arrival"])),
        "suspicious_count": {"day": told.suspicious_day, "total": told.suspicious_total},
        "late": told.late,
        "conflicting_repetition": told.conflicting,
        "source": source_of(told),
    }
    if held_since:
        alert["suppressed_by"] = {"arrival_time": held_since}
    value = orjson.dumps(alert)
    return Alert(int(record["partition"]), int(record["offset"]), card_id.encode(), value), rules


def name_of(told: Told) -> str:
    """The alert's id (`models.policy.alert_id`)."""
    card_id, transaction_id, merchant_id, _ = unquote(told.quote)
    return alert_id(
        card_id,
        transaction_id,
        event_time=int(told.record["time"]),
        units=int(told.record["amount"]),
        merchant_id=merchant_id,
        country=country_name(int(told.record["country"])),
    )


def model_of(who: Decides) -> dict[str, str]:
    """The `model` of a record."""
    return {"name": who.model.name, "version": who.model.version, "digest": who.model.digest}


def source_of(told: Told) -> dict[str, Any]:
    """The `source` of a record."""
    record = told.record
    return {"topic": told.topic, "partition": int(record["partition"]), "offset": int(record["offset"])}


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
