"""The shadow alert: a transaction on which a challenger's verdict is not the champion's."""

from typing import Any

import orjson

from streaming_job.decide.alerts import Told, model_of, name_of, source_of
from streaming_job.decide.ruling import Judged, Ruling
from streaming_job.decode.transactions import unquote
from streaming_job.progress.outcome import Alert


def build(told: Told, ruling: Ruling, row: int) -> list[Alert]:
    """One record of contract shadow-alert.v1 for each challenger that differs, in the plan's order.

    Whether a verdict would be escalated follows from the card's real alerts: as if it were the next one.

    Args:
        told: of the transaction.
        ruling: of the plan under which it arrived.
        row: of the transaction in the ruling.
    """
    champion = ruling.champion
    card_id, transaction_id, *_ = unquote(told.quote)
    built = []
    for judged in ruling.challengers:
        if judged.verdicts.alerts[row] == champion.verdicts.alerts[row]:
            continue
        who = judged.who
        record = {
            "schema_version": 1,
            "alert_id": name_of(told),
            "card_id": card_id,
            "transaction_id": transaction_id,
            "arrival_time": int(told.record["arrival"]),
            "rollout_id": who.rollout_id,
            "seq": who.seq,
            "challenger": who.challenger,
            "role": who.role,
            "model": model_of(who),
            "threshold": who.policy.threshold,
            **_verdict(judged, row, told.suspicious_day),
            "champion": _verdict(champion, row, told.suspicious_day),
            "source": source_of(told),
        }
        place = int(told.record["partition"]), int(told.record["offset"])
        built.append(Alert(*place, card_id.encode(), orjson.dumps(record)))
    return built


def _verdict(judged: Judged, row: int, day: int) -> dict[str, Any]:
    rules = judged.verdicts.rules(row, day)
    return {"score": judged.score(row), "alerts": bool(rules), "rules": rules}
