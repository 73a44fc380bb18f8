"""Alerts as `/v1/alerts` and the status page show them. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from models.sentences.alerts import of_alert
from streaming_job.contracts import Contract, ContractError, validate

FIELDS = (
    "alert_id", "card_id", "transaction_id", "merchant_id", "amount", "currency", "country", "event_time",
    "arrival_time", "decision", "rules", "score", "threshold", "late", "rollout_id", "source",
)  # fmt: skip
"""Fields that are copied unchanged; the route masks the card id."""


def views(values: Sequence[bytes]) -> tuple[list[dict[str, Any]], int]:
    """Return alerts with their reasons in sentences, and the number of invalid records.

    Args:
        values: records of the topic, in the order of display.
    """
    alerts = [alert for alert in map(_view, values) if alert is not None]
    return alerts, len(values) - len(alerts)


@lru_cache(maxsize=512)  # an open page requests the same alerts again and again
def _view(value: bytes) -> dict[str, Any] | None:
    try:
        alert = orjson.loads(value)
        validate(Contract.ALERT, alert)
    except (ContractError, orjson.JSONDecodeError):
        return None
    return {
        **{name: alert[name] for name in FIELDS},
        "role": alert.get("role", "champion"),
        "model": {name: alert["model"][name] for name in ("name", "version")},
        "sentences": of_alert(alert),
    }
