"""Alerts for tests of their consumers, checked against their contract."""

import uuid
from typing import Any

from feature_store.catalogue import NAMES
from streaming_job.contracts import Contract, validate

USUAL = {
    "amount": 48.0, "amount_tail": 150.0, "count_30d": 60.0, "sum_30d": 2_880.0, "ratio_median": 1.0,
    "ratio_mean_30d": 1.0, "ratio_robust": 1.0,
    **{f"{stem}_{window}": value
       for stem, value in (("count", 1.0), ("merchants", 1.0), ("countries", 1.0), ("arrivals", 1.0),
                           ("sum", 48.0), ("mean", 48.0), ("max", 48.0), ("spikes", 0.0))
       for window in ("1m", "5m", "1h", "24h", "7d")},
}  # fmt: skip
"""Roughly the features of a card that pays 48 every twelve hours; features not listed are unknown.

Even the windows of 24 hours and 7 days hold only the transaction itself, unlike such a card's.
"""


def alert(
    number: int, at_ms: int, reasons: tuple[str, ...] = ("count_5m",), **changes: Any
) -> dict[str, Any]:
    """An alert on transaction number `number`.

    Args:
        number: is in the ids of transaction and card, and is the offset.
        at_ms: arrival, ms.
        reasons: features that raised the score.
        changes: changed fields; `features`: only those that differ from USUAL.
    """
    values = {**dict.fromkeys(NAMES), **USUAL, **changes.pop("features", {})}
    record = {
        "schema_version": 1,
        "alert_id": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        "card_id": f"card-{number:06d}",
        "transaction_id": f"tx-{number}",
        "merchant_id": f"m-{number % 7}",
        "amount": values["amount"],
        "currency": "EUR",
        "country": "FR",
        "event_time": at_ms - 40,
        "arrival_time": at_ms,
        "decision": "review",
        "rules": ["score"],
        "score": 0.93,
        "score_percentile": None,
        "model_failure": None,
        "challenger_failure": None,
        "threshold": 0.4,
        "reasons": [
            {"feature": name, "value": values[name], "contribution": 1.0 / (1 + rank)}
            for rank, name in enumerate(reasons)
        ],
        "features": values,
        "model": {"name": "card-fraud", "version": "1", "digest": "cd" * 32},
        "release": "0.1.0+0123abcd",
        "rollout_id": "card-fraud-1",
        "rollout_seq": 2,
        "role": "champion",
        "membership": None,
        "policy": "ef" * 32,
        "profile": None,
        "suspicious_count": {"day": 1, "total": 1},
        "late": False,
        "conflicting_repetition": False,
        "source": {"topic": "transactions", "partition": number % 2, "offset": number},
        **changes,
    }
    validate(Contract.ALERT, record)
    return record
