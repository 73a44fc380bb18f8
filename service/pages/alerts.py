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
INCOMPLETE = ("profile_unknown", "history_cut")
"""Fields that say what the decision lacked; releases before them have not written any."""


EXAMPLE: dict[str, Any] = {
    "alerts": [
        {
            "alert_id": "5f0c2f0e-3c1b-5d7e-9a51-0d6a7b1c2d3e", "card_id": "c_***42", "transaction_id": "t-1",
            "merchant_id": "m-7", "amount": 523.1, "currency": "EUR", "country": "DE",
            "event_time": 1_763_873_699_900, "arrival_time": 1_763_873_700_000, "decision": "review",
            "rules": ["score", "velocity_5m"], "score": 0.971, "threshold": 0.4, "late": False,
            "profile_unknown": False, "history_cut": False, "rollout_id": "card-fraud-6", "role": "champion",
            "source": {"topic": "transactions", "partition": 0, "offset": 81_300},
            "model": {"name": "card-fraud", "version": "6"},
            "sentences": ["7 payments in 5 minutes; usually 0.4 an hour"],
        }
    ],
    "unreadable": 0,
    "waiting_for": None,
}  # fmt: skip
"""Example answer of `/v1/alerts`."""


def views(values: Sequence[bytes]) -> tuple[list[dict[str, Any]], int]:
    """Return alerts with their reasons in sentences, and the number of invalid records."""
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
        **{name: alert.get(name, False) for name in INCOMPLETE},
        "role": alert["role"],
        "model": {name: alert["model"][name] for name in ("name", "version")},
        "sentences": of_alert(alert),
    }
