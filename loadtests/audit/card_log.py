"""The records that one alert depends on: transactions and profiles of its card, and the rollout events."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.topic_log import Log
from loadtests.oracle import Record
from streaming_job.contracts.topics import Topics
from streaming_job.decode.snapshots import ends_snapshot


class AlertError(FraudError):
    """There is no such alert, it lacks card or transaction, or the log no longer has what it depends on.

    Check the id and the topics' retention.
    """


@dataclass(frozen=True)
class CardLog:
    """The records that an alert depends on."""

    alerts: list[Record]
    """Records of fraud-alerts and suppressed-alerts with the alert's id."""
    alert: dict[str, Any]
    transactions: list[Record]
    """Records that may be of the card, up to the alert's transaction, in the order of offsets."""
    profiles: list[Record]
    """Profile records that may be of the card, those of each partition in the order of offsets."""
    snapshot_end: int | None
    """End of the first snapshot of the profiles, ms; None if it has not ended."""
    rollouts: list[Record]
    refused: dict[int, str]
    """Reasons of refused rollout events, by offset."""

    @property
    def source(self) -> tuple[int, int]:
        """Partition and offset of the alert's transaction."""
        return self.alert["source"]["partition"], self.alert["source"]["offset"]


def collect(log: Log, topics: Topics, alert_id: str) -> CardLog:
    """Read the records that an alert depends on; of the transactions, those of its partition up to its own.

    Raises:
        AlertError: there is no such alert, it does not name its card and transaction, or transactions of its
            partition were deleted.
        TopicReadError: a topic cannot be read.
    """
    alerts = [
        record
        for topic in (topics.fraud_alerts, topics.suppressed_alerts)
        for record in log.read(topic)
        if alert_id.encode() in (record.value or b"") and _alert(record).get("alert_id") == alert_id
    ]
    if not alerts:
        raise AlertError(
            f"there is no alert {alert_id} on {topics.fraud_alerts} or {topics.suppressed_alerts}; check the "
            "id, and how long the topics are kept"
        )
    alert = _alert(alerts[0])
    try:
        card_id, source = str(alert["card_id"]), alert["source"]
        partition, offset = int(source["partition"]), int(source["offset"])
    except (KeyError, TypeError, ValueError):
        raise AlertError(f"alert {alert_id} does not name its card and its transaction") from None
    first = log.beginnings(topics.transactions).get(partition, 0)
    if first:
        raise AlertError(
            f"{topics.transactions}[{partition}] begins at {first}: older transactions were deleted, so "
            f"alert {alert_id} cannot be decided again; keep the topic for longer"
        )
    transactions = list(_of(card_id, log.read(topics.transactions, {partition: offset + 1})))
    if not transactions or transactions[-1].offset != offset:
        raise AlertError(
            f"transaction {topics.transactions}[{partition}]@{offset} of alert {alert_id} is not on the log "
            "any more; keep the topic for longer"
        )
    snapshot_ends: list[int] = []
    profiles: list[Record] = []
    for record in log.read(topics.profiles):
        if ends_snapshot(record.value):
            snapshot_ends.append(record.timestamp)
        profiles += _of(card_id, [record])
    refused = {}
    for record in log.read(topics.dead_letters):
        if topics.model_rollouts.encode() in (record.value or b""):
            letter = _alert(record)
            if letter.get("topic") == topics.model_rollouts:
                refused[int(letter["offset"])] = str(letter["reason"])
    rollouts = list(log.read(topics.model_rollouts))
    return CardLog(alerts, alert, transactions, profiles, min(snapshot_ends, default=None), rollouts, refused)


def _alert(record: Record) -> dict[str, Any]:
    try:
        alert = json.loads(record.value or b"")
    except ValueError:
        return {}
    return alert if isinstance(alert, dict) else {}


def _of(card_id: str, records: Iterable[Record]) -> Iterable[Record]:
    """Yield the records that contain the card's id, or may contain it escaped."""
    word = json.dumps(card_id, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for record in records:
        content = (record.key or b"") + b" " + (record.value or b"")
        if word in content or b"\\" in content:
            yield record
