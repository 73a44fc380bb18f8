"""Alerts as `/v1/alerts` and the status page show them. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from models.sentences.alerts import of_alert
from streaming_job.contracts import Contract, ContractError, validate

SHOWN = (
    "alert_id", "card_id", "transaction_id", "merchant_id", "amount", "currency", "country", "event_time",
    "arrival_time", "decision", "rules", "score", "threshold", "late", "rollout_id", "source",
)  # fmt: skip
"""Fields that are shown as they are; who answers masks the card id."""


def shown(values: Sequence[bytes]) -> tuple[list[dict[str, Any]], int]:
    """Alerts with their reasons in sentences, and how many of the records were no alerts.

    Args:
        values: records of the topic, in the order in which they are shown.
    """
    found = [one for one in map(_shown, values) if one is not None]
    return found, len(values) - len(found)


@lru_cache(maxsize=512)  # who looks at the page asks for the same ones again and again
def _shown(value: bytes) -> dict[str, Any] | None:
    try:
        alert = orjson.loads(value)
        validate(Contract.ALERT, alert)
    except (ContractError, orjson.JSONDecodeError):
        return None
    return {
        **{name: alert[name] for name in SHOWN},
        "role": alert.get("role", "champion"),
        "model": {name: alert["model"][name] for name in ("name", "version")},
        "sentences": of_alert(alert),
    }
