"""Shadow alerts (contract shadow-alert.v1): transactions on which challenger and champion differ."""

from typing import Any

import orjson

from streaming_job.decide.alerts import AlertContext, model_of, name_of, source_of
from streaming_job.decide.ruling import ModelResult, Ruling
from streaming_job.progress.outcome import OutputRecord


def build(context: AlertContext, ruling: Ruling, row: int) -> list[OutputRecord]:
    """Build one shadow alert for each challenger whose verdict differs, in the plan's order.

    The rule `escalated` counts the card's real alerts, whichever model decided them,
    and this transaction as one more.

    Args:
        ruling: the ruling of the plan that was in force when the transaction arrived.
        row: row of the transaction in the ruling.
    """
    champion = ruling.champion
    shadow_alerts = []
    for result in ruling.challengers:
        if result.verdicts.alerts[row] == champion.verdicts.alerts[row]:
            continue
        decider = result.decider
        record = {
            "schema_version": 1,
            "alert_id": name_of(context),
            "card_id": context.card_id,
            "transaction_id": context.transaction_id,
            "arrival_time": context.arrival_time,
            "rollout_id": decider.rollout_id,
            "seq": decider.seq,
            "challenger": decider.challenger,
            "role": decider.role,
            "model": model_of(decider),
            "release": context.release,
            "threshold": decider.policy.threshold,
            **_verdict(result, row, context.suspicious_day),
            "champion": _verdict(champion, row, context.suspicious_day),
            "source": source_of(context),
        }
        shadow_alerts.append(
            OutputRecord(context.card_id.encode(), orjson.dumps(record), context.partition, context.offset)
        )
    return shadow_alerts


def _verdict(result: ModelResult, row: int, day: int) -> dict[str, Any]:
    rules = result.verdicts.rules(row, day)
    return {"score": result.score(row), "alerts": bool(rules), "rules": rules}
