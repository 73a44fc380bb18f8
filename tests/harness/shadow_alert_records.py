"""Shadow alerts for tests of their consumers, checked against their contract."""

from typing import Any

from harness.alert_records import alert
from streaming_job.contracts import Contract, validate


def shadow_alert(
    number: int, at_ms: int, challenger: str, *, alerts: bool, rollout_id: str = "r2"
) -> dict[str, Any]:
    """A shadow alert: a transaction on which a shadow and the champion differ.

    Args:
        number: of the transaction; see `alert_records.alert`.
        at_ms: arrival, ms.
        alerts: whether the challenger alerts; the champion does the opposite.
    """
    of_alert = alert(number, at_ms)
    names = ("alert_id", "card_id", "transaction_id", "arrival_time", "model", "release", "source")
    verdict = {True: {"score": 0.9, "alerts": True, "rules": ["score"]}}
    verdict[False] = {"score": 0.1, "alerts": False, "rules": []}
    record = {
        "schema_version": 1,
        **{name: of_alert[name] for name in names},
        "rollout_id": rollout_id,
        "seq": 2,
        "challenger": challenger,
        "role": "shadow",
        "threshold": 0.5,
        **verdict[alerts],
        "champion": verdict[not alerts],
    }
    validate(Contract.SHADOW_ALERT, record)
    return record
