"""Alert records (contract alert.v1), built with their fields in a fixed order."""

from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.layout import BEGINNING, STATUSES, UNITS_PER_CURRENCY
from feature_store.merchants.catalogue import ALL_NAMES
from models.parameters import DECLINE, REVIEW
from models.policy import alert_id
from models.rollouts.state import Decides
from streaming_job.decide.ruling import Ruling, digest_of
from streaming_job.progress.outcome import OutputRecord

REASONS = 5
"""Maximum number of features that an alert names as reasons."""


def reasons(features: NDArray[np.float64], contributions: NDArray[np.float64]) -> list[list[dict[str, Any]]]:
    """Return the features that raised each score most, strongest first; ties in column order.

    Args:
        features: shape (k, number of features).
        contributions: contribution of each feature to the log-odds, the same shape.
    """
    strongest = np.argsort(-contributions, axis=1, kind="stable")[:, :REASONS]
    columns = (
        strongest,
        np.take_along_axis(features, strongest, axis=1),
        np.take_along_axis(contributions, strongest, axis=1),
    )
    return [
        [
            {"feature": ALL_NAMES[column], "value": value, "contribution": contribution}
            for column, value, contribution in zip(*row, strict=True)
            if contribution > 0
        ]
        for row in zip(*(values.tolist() for values in columns), strict=True)
    ]


class AlertContext(NamedTuple):
    """A transaction with the values that its alert and its shadow alerts share."""

    card_id: str
    transaction_id: str
    merchant_id: str
    currency: str
    units: int
    """Amount in 1/10,000 of the currency unit."""
    country: str
    event_time: int
    arrival_time: int
    release: str
    """The release that decides (`feature_store.release`)."""
    topic: str
    """Topic of the transaction."""
    partition: int
    offset: int
    profile: np.void | None
    """The profile version in force (PROFILE); None without one."""
    profile_unknown: bool
    """Whether compaction may have removed the version in force."""
    history_cut: bool
    """Whether windows may lack transactions that retention has deleted."""
    late: bool
    """Whether an event of the card with a later event time was decided before."""
    conflicting: bool
    """Whether the transaction id had been accepted before, with other content."""
    suspicious_day: int
    """Alerts of the card in the last 24 clock hours, and this transaction, whether it is an alert or not."""
    suspicious_total: int
    """Alerts of the card since it (re)started, and this transaction, whether it is an alert or not."""


def build(
    context: AlertContext,
    ruling: Ruling,
    row: int,
    top_features: list[dict[str, Any]],
    failure: str | None,
    last_sent_ms: int = 0,
) -> tuple[OutputRecord, tuple[str, ...]]:
    """Build an alert of contract alert.v1; the same inputs give the same bytes.

    Args:
        row: row of the transaction in the ruling.
        top_features: the alert's `reasons`.
        failure: how the deciding model failed (`models.guarded`); None if it did not.
        last_sent_ms: for a suppressed alert, arrival of the card's last alert that was sent, ms; else 0.

    Returns:
        The alert, and the rules that fired.
    """
    result = ruling.deciding_result(row)
    decider, verdicts = result.decider, result.verdicts
    rules = verdicts.rules(row, context.suspicious_day)
    alert = {
        "schema_version": 1,
        "alert_id": name_of(context),
        "card_id": context.card_id,
        "transaction_id": context.transaction_id,
        "merchant_id": context.merchant_id,
        "amount": context.units / UNITS_PER_CURRENCY,
        "currency": context.currency,
        "country": context.country,
        "event_time": context.event_time,
        "arrival_time": context.arrival_time,
        "decision": DECLINE if verdicts.declines(rules) else REVIEW,
        "rules": rules,
        "score": result.score(row),
        "score_percentile": result.percentile(row),
        "model_failure": failure,
        "challenger_failure": ruling.challenger_failure(row),
        "threshold": decider.policy.threshold,
        "policy": digest_of(decider.policy),
        "reasons": top_features,
        # a job without merchant facts has only the first columns of ALL_NAMES
        "features": dict(zip(ALL_NAMES, ruling.features[row].tolist(), strict=False)),
        "model": model_of(decider),
        "release": context.release,
        "rollout_id": decider.rollout_id,
        "rollout_seq": decider.seq,
        "role": decider.role,
        "membership": ruling.member(row),
        "profile": None if context.profile is None else _profile(context.profile, context.arrival_time),
        "profile_unknown": context.profile_unknown,
        "history_cut": context.history_cut,
        "suspicious_count": {"day": context.suspicious_day, "total": context.suspicious_total},
        "late": context.late,
        "conflicting_repetition": context.conflicting,
        "source": source_of(context),
    }
    if last_sent_ms:
        alert["suppressed_by"] = {"arrival_time": last_sent_ms}
    value = orjson.dumps(alert)
    return OutputRecord(context.card_id.encode(), value, context.partition, context.offset), rules


def name_of(context: AlertContext) -> str:
    """Return the alert's id (`models.policy.alert_id`)."""
    return alert_id(
        context.card_id,
        context.transaction_id,
        event_time=context.event_time,
        units=context.units,
        merchant_id=context.merchant_id,
        country=context.country,
        currency=context.currency,
    )


def model_of(decider: Decides) -> dict[str, str]:
    """Return the field `model` of a record."""
    return {"name": decider.model.name, "version": decider.model.version, "digest": decider.model.digest}


def source_of(context: AlertContext) -> dict[str, Any]:
    """Return the field `source` of a record."""
    return {"topic": context.topic, "partition": context.partition, "offset": context.offset}


def _profile(profile: np.void, seen_at: int) -> dict[str, Any]:
    known_from = int(profile["arrival"])
    return {
        "status": STATUSES[int(profile["status"])],
        "partition": int(profile["partition"]),
        "offset": int(profile["offset"]),
        # a row of Debezium's first snapshot counts as known from the beginning
        "arrival_time": max(known_from, 0),
        "age_ms": None if known_from == BEGINNING else max(seen_at - known_from, 0),
    }
