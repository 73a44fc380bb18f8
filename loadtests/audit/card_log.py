"""The records that one alert depends on: transactions and profiles of its card, and the rollout events."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from feature_store.errors import FraudError
from loadtests.audit.commits import commit_of
from loadtests.audit.content import content_of
from loadtests.audit.moves import moves_in, stretches
from loadtests.audit.settings_audit import require_one_topic
from loadtests.audit.topic_log import Log
from loadtests.oracle import Record
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.log.losses import Losses, losses_in
from streaming_job.log.partitioner import Layout
from streaming_job.progress.record import ROLLOUT_TOPICS
from streaming_job.settings import JobSettings

NAMED = f'"{ROLLOUT_TOPICS}"'.encode()


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
    losses: Losses
    """See `moves.Stretch`."""
    snapshot_end: int | None
    """End of the first snapshot of the profiles, ms; None if it has not ended."""
    rollouts: list[Record]
    """Records of the topic whose rollouts have decided the alert."""
    rollout_topic: str
    schemas: list[Record]
    """The schemas of framed transactions."""
    refused: dict[int, str]
    """Reasons of refused rollout events, by offset."""

    layout: Layout
    """Where the alert's transaction is. Transactions from before a takeover that moved the cards are shown as
    if they had been there, in their card's partition; their offsets are those of the former topic."""

    @property
    def source(self) -> tuple[int, int]:
        """Partition and offset of the alert's transaction."""
        return self.alert["source"]["partition"], self.alert["source"]["offset"]


def collect(log: Log, settings: JobSettings, alert_id: str) -> CardLog:
    """Read the records that an alert depends on; of the transactions, those of its partition up to its own.

    Of a job whose transactions have moved, also all earlier ones of the card.

    Raises:
        AlertError: there is no such alert, it does not name its card and transaction, or transactions of its
            partition were deleted.
    """
    topics = settings.topics
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
        topic, partition, offset = str(source["topic"]), int(source["partition"]), int(source["offset"])
    except (KeyError, TypeError, ValueError):
        raise AlertError(f"alert {alert_id} does not name its card and its transaction") from None
    layout = settings.layout(len(log.ends(topics.transactions)))
    origin: list[Mapping[str, Any]] = []
    """A progress record of key group 0 of the query that has written the alert."""
    query_id = commit_of(alerts[0]).query_id

    def progress() -> Iterator[Record]:
        for record in log.read(topics.job_progress):
            if not origin and NAMED in (record.value or b"") and commit_of(record).query_id == query_id:
                origin.append(content_of(record.value))
            yield record

    parts = stretches(moves_in(progress(), settings.job_id), layout, {})
    if not origin:
        raise AlertError(
            f"{topics.job_progress} has no record of key group 0 of query {query_id!r}, which has written "
            f"alert {alert_id}: it is unknown whose rollouts have decided it; keep the topic for longer"
        )
    row = origin[0]
    if topic not in {part.layout.topic for part in parts}:
        raise AlertError(
            f"alert {alert_id} is about a transaction of {topic}, no topic of this job; check the settings"
        )
    transactions: list[Record] = []
    for part in parts:
        is_last = part.layout.topic == topic and (
            part is parts[-1] or part.starts.get(partition, 0) <= offset < part.ends.get(partition, 0)
        )
        home = part.layout.key_groups(1).partition_of(card_id)
        ends = {partition: offset + 1} if is_last else {home: part.ends[home]}
        begins = log.beginnings(part.layout.topic)
        if cut := {p: begins[p] for p in ends if begins.get(p, 0) > part.starts.get(p, 0)}:
            place, first = cut.popitem()
            raise AlertError(
                f"{part.layout.topic}[{place}] begins at {first}: older transactions were deleted, so "
                f"alert {alert_id} cannot be decided again; keep the topic for longer"
            )
        transactions += _of(card_id, log.read(part.layout.topic, ends, part.starts))
        if is_last:
            layout = part.layout
            break
    if not transactions or transactions[-1].offset != offset:
        raise AlertError(
            f"transaction {topic}[{partition}]@{offset} of alert {alert_id} is not on the log "
            "any more; keep the topic for longer"
        )
    transactions = [
        record
        if (record.topic, record.partition) == (topic, partition)
        else record._replace(topic=topic, partition=partition)
        for record in transactions
    ]
    snapshot_ends: list[int] = []
    profiles: list[Record] = []
    for record in log.read(topics.profiles):
        if ends_snapshot(record.value):
            snapshot_ends.append(record.timestamp)
        profiles += _of(card_id, [record])
    refused = {}
    require_one_topic(row)
    rollout_topic = str(row[ROLLOUT_TOPICS][-1])
    for record in log.read(topics.dead_letters):
        if rollout_topic.encode() in (record.value or b""):
            letter = _alert(record)
            if letter.get("topic") == rollout_topic:
                refused[int(letter["offset"])] = str(letter["reason"])
    rollouts = list(log.read(rollout_topic))
    end = min(snapshot_ends, default=None)
    schemas = list(log.read(topics.record_schemas)) if topics.record_schemas else []
    return CardLog(
        alerts, alert, transactions, profiles, losses_in(row), end, rollouts, rollout_topic, schemas, refused,
        layout,
    )  # fmt: skip


def _alert(record: Record) -> dict[str, Any]:
    try:
        alert = content_of(record.value)
    except ValueError:
        return {}
    return alert if isinstance(alert, dict) else {}


def _of(card_id: str, records: Iterable[Record]) -> Iterable[Record]:
    """Yield the records that contain the card's id, or may contain it escaped or framed."""
    word = json.dumps(card_id, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for record in records:
        content = (record.key or b"") + b" " + (record.value or b"")
        if word in content or b"\\" in content or content.startswith(b"\0", len(record.key or b"") + 1):
            yield record
