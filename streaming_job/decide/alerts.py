"""Alert records (contract alert.v1), built with their fields in a fixed order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.layout import BEGINNING, STATUSES, UNITS_PER_CURRENCY, country_name
from feature_store.merchants.catalogue import ALL_NAMES
from models.policy import DECLINE, REVIEW, alert_id
from models.rollouts.state import Decides
from streaming_job.decide.ruling import Ruling, digest_of
from streaming_job.decode.transactions import split_quote
from streaming_job.progress.outcome import Alert

REASONS = 5
"""Maximum number of features that an alert names as reasons."""


def reasons(features: NDArray[np.float64], contributions: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Return the features that raised the score most, strongest first; ties in column order."""
    strongest = np.argsort(-contributions, kind="stable")[:REASONS]
    return [
        {"feature": ALL_NAMES[c], "value": float(features[c]), "contribution": float(contributions[c])}
        for c in strongest.tolist()
        if contributions[c] > 0
    ]


@dataclass(frozen=True)
class AlertContext:
    """A transaction with the facts that its alerts and shadow alerts share."""

    quote: bytes
    """The transaction's texts that are copied unchanged (`transactions.quote`)."""
    record: np.void
    """The transaction (TRANSACTION)."""
    topic: str
    """Topic of the transaction."""
    profile: np.void | None
    """The profile version in force (PROFILE); None without one."""
    late: bool
    """Whether a later event of the card had been decided before."""
    conflicting: bool
    """Whether the transaction id had been accepted before, with other content."""
    suspicious_day: int
    """Alerts of the card in the last 24 clock hours, this one included."""
    suspicious_total: int
    """Alerts of the card, this one included."""


def build(
    context: AlertContext,
    ruling: Ruling,
    row: int,
    contributions: NDArray[np.float64],
    failure: str | None,
    held_since: int = 0,
) -> tuple[Alert, tuple[str, ...]]:
    """An alert of contract alert.v1; the same inputs give the same bytes.

    Args:
        context: the transaction.
        ruling: the ruling that decided it.
        row: row of the transaction in the ruling.
        contributions: contribution of each feature to the log-odds, shape (len(FEATURES),).
        failure: how the deciding model failed (`models.guarded`); None if it did not.
        held_since: for a suppressed alert, arrival of the card's last alert that was sent, ms; else 0.

    Returns:
        The alert, and the rules that fired.
    """
    record, result = context.record, ruling.deciding_result(row)
    decider, verdicts = result.decider, result.verdicts
    rules = verdicts.rules(row, context.suspicious_day)
    card_id, transaction_id, merchant_id, currency = split_quote(context.quote)
    features = ruling.features[row]
    alert = {
        "schema_version": 1,
        "alert_id": name_of(context),
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
        "score": result.score(row),
        "score_percentile": result.percentile(row),
        "model_failure": failure,
        "challenger_failure": ruling.challenger_failure(row),
        "threshold": decider.policy.threshold,
        "policy": digest_of(decider.policy),
        "reasons": reasons(features, contributions),
        # without merchant facts there are the first columns only
        "features": dict(zip(ALL_NAMES, features.tolist(), strict=False)),
        "model": model_of(decider),
        "rollout_id": decider.rollout_id,
        "rollout_seq": decider.seq,
        "role": decider.role,
        "membership": ruling.member(row),
        "profile": None if context.profile is None else _profile(context.profile, int(record["arrival"])),
        "suspicious_count": {"day": context.suspicious_day, "total": context.suspicious_total},
        "late": context.late,
        "conflicting_repetition": context.conflicting,
        "source": source_of(context),
    }
    if held_since:
        alert["suppressed_by"] = {"arrival_time": held_since}
    value = orjson.dumps(alert)
    return Alert(int(record["partition"]), int(record["offset"]), card_id.encode(), value), rules


def name_of(context: AlertContext) -> str:
    """Return the alert's id (`models.policy.alert_id`)."""
    card_id, transaction_id, merchant_id, _ = split_quote(context.quote)
    return alert_id(
        card_id,
        transaction_id,
        event_time=int(context.record["time"]),
        units=int(context.record["amount"]),
        merchant_id=merchant_id,
        country=country_name(int(context.record["country"])),
    )


def model_of(decider: Decides) -> dict[str, str]:
    """Return the field `model` of a record."""
    return {"name": decider.model.name, "version": decider.model.version, "digest": decider.model.digest}


def source_of(context: AlertContext) -> dict[str, Any]:
    """Return the field `source` of a record."""
    record = context.record
    return {"topic": context.topic, "partition": int(record["partition"]), "offset": int(record["offset"])}


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
