"""Alerts and labels of a trial read from real topics, and the time from which on they are complete."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.alert_records import alert
from harness.shadow_alert_records import shadow_alert

from deploy.local.stack import Endpoints
from models.guards.counts import Labelled
from service.precision import trial_topics
from service.precision.trial import LabelCounts, LabelledTrial
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration

PARTITIONS = 2
DAY = 86_400_000
FRAUD, GENUINE = True, False


class Log:
    """The topics of an installation, with alerts of its job, and with labels."""

    def __init__(self, servers: str, topics: Topics, but: tuple[str, ...] = ()) -> None:
        self.settings = ServiceSettings(bootstrap_servers=servers, topics=topics)
        self.topics, self.admin = topics, AdminClient({"bootstrap.servers": servers})
        self._producer = Producer({"bootstrap.servers": servers})
        self.now = int(time.time() * 1000)
        self.names = [
            name
            for name in (
                topics.fraud_alerts, topics.suppressed_alerts, topics.shadow_alerts, topics.labels,
                topics.chargebacks,
            )
            if name not in but
        ]  # fmt: skip
        for created in self.admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in self.names]
        ).values():
            created.result(30)

    def send(self, topic: str, *records: dict[str, Any], timestamp: int = 0) -> None:
        for record in records:
            self._producer.produce(
                topic, json.dumps(record).encode(), str(record["card_id"]).encode(), timestamp=timestamp
            )
        assert self._producer.flush(30) == 0

    def alerts(self, *numbers: int, at: int | None = None) -> None:
        """Write alerts of the champion."""
        arrival = self.now if at is None else at
        self.send(self.topics.fraud_alerts, *(alert(n, arrival) for n in numbers), timestamp=arrival)

    def label(self, number: int, fraud: bool, *, at: int | None = None, kind: str = "verdict") -> None:
        identity = {name: alert(number, self.now)[name] for name in ("card_id", "transaction_id")}
        output = {"verdict": "fraud"} if fraud else {"verdict": "genuine", "reason": "travel"}
        record = {
            "schema_version": 1, **identity, "kind": kind, **(output if kind == "verdict" else {}),
            "source": "test", "occurred_at": 1, "maturity": "final",
        }  # fmt: skip
        self.send(self.topics.labels, record, timestamp=at or self.now)

    def chargeback(self, number: int, label: str, *, at: int | None = None) -> None:
        identity = {name: alert(number, self.now)[name] for name in ("card_id", "transaction_id")}
        record = {**identity, "merchant_id": "m1", "event_time": 1, "reported_at": 2, "label": label}
        self.send(self.topics.chargebacks, record, timestamp=at or self.now)

    def counts(self, since: int | None = None) -> LabelCounts:
        trial = LabelledTrial("r2", ("b",), self.now - 10_000 if since is None else since)
        return trial_topics.read_once(self.settings, trial, self.now + 1_000)


@pytest.fixture
def log(stack: Endpoints, topic_names: Callable[[], Topics]) -> Log:
    return Log(stack.bootstrap_servers, topic_names())


def test_alerts_of_three_topics_meet_labels_of_two(log: Log) -> None:
    log.alerts(0, 1, 2)
    log.send(log.topics.suppressed_alerts, alert(3, log.now))
    # 1 is an alert of the champion alone, 4 one of the challenger alone
    log.send(log.topics.shadow_alerts, shadow_alert(1, log.now, "b", alerts=False))
    log.send(log.topics.shadow_alerts, shadow_alert(4, log.now, "b", alerts=True))
    log.send(log.topics.fraud_alerts, {"card_id": "no alert"})
    log.label(0, FRAUD)
    log.label(1, FRAUD)
    log.label(3, GENUINE)
    log.label(4, GENUINE, kind="refund")  # a refund says neither fraud nor genuine
    log.chargeback(4, "genuine")
    log.send(log.topics.labels, {"card_id": "no label"})
    assert log.counts() == LabelCounts(Labelled(2, 1), {"b": Labelled(1, 2)})
    # the label that arrived last counts, from either topic: for 0 the chargeback, for 3 the verdict
    log.chargeback(0, "genuine", at=log.now + 1)
    log.chargeback(3, "fraud", at=log.now - 1)
    assert log.counts() == LabelCounts(Labelled(1, 2), {"b": Labelled(0, 3)})


def test_records_before_the_shadow_do_not_belong_to_the_trial(log: Log) -> None:
    log.alerts(0, at=log.now - 5_000)
    log.alerts(1, at=log.now - 4_000)
    log.label(0, FRAUD)
    log.label(1, GENUINE)
    assert log.counts(since=log.now - 4_000) == LabelCounts(Labelled(0, 1), {"b": Labelled(0, 1)})


def test_a_missing_topic_is_named_and_no_card_is_counted(
    stack: Endpoints, topic_names: Callable[[], Topics]
) -> None:
    topics = topic_names()
    log = Log(stack.bootstrap_servers, topics, but=(topics.chargebacks,))
    log.alerts(0)
    log.label(0, FRAUD)
    result = log.counts()
    assert (result.champion, result.challengers) == (Labelled(), {})
    assert result.waiting_for is not None
    assert f"topic {topics.chargebacks} does not exist" in result.waiting_for


def delete_before(log: Log, topic: str, offsets: dict[int, int]) -> None:
    parts = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for done in log.admin.delete_records(parts).values():
        done.result(30)


def test_a_trial_is_counted_from_the_time_at_which_all_topics_are_complete(log: Log) -> None:
    """Yesterday's shadow alerts are deleted: without them, alert 1 would seem to be one of both models.

    yesterday  alerts 0 1, shadow alert of 1     deleted: the shadow alert
    now        alerts 2, labels of all
    """
    yesterday = log.now - DAY
    log.alerts(0, 1, at=yesterday)
    log.send(log.topics.shadow_alerts, shadow_alert(1, yesterday, "b", alerts=False), timestamp=yesterday)
    log.alerts(2)
    for number in range(3):
        log.label(number, GENUINE)
    since = yesterday - 1
    whole = LabelCounts(Labelled(0, 3), {"b": Labelled(0, 2)})
    assert log.counts(since) == whole
    delete_before(log, log.topics.shadow_alerts, dict.fromkeys(range(PARTITIONS), -1))
    # without a retention time, it is unknown which times the deleted records covered
    nothing = LabelCounts(Labelled(), {"b": Labelled()})
    assert log.counts(since) == nothing
    for number in range(20, 40):  # some in every partition: complete from their time on
        log.send(log.topics.shadow_alerts, shadow_alert(number, log.now, "b", alerts=True), timestamp=log.now)
    assert log.counts(since) == LabelCounts(Labelled(0, 1), {"b": Labelled(0, 1)})


def test_deletion_of_records_before_the_trial_changes_no_count(log: Log) -> None:
    """A topic whose records before the trial were deleted keeps those of the trial for a week."""
    old = log.now - 30 * DAY
    for number in range(8):
        log.send(log.topics.shadow_alerts, shadow_alert(number, old, "b", alerts=True), timestamp=old)
    delete_before(log, log.topics.shadow_alerts, dict.fromkeys(range(PARTITIONS), -1))
    set_retention(log, log.topics.shadow_alerts, 7 * DAY)
    log.alerts(0, 1, at=log.now - DAY)
    log.label(0, FRAUD)
    log.label(1, GENUINE)
    counted = LabelCounts(Labelled(1, 1), {"b": Labelled(1, 1)})
    assert log.counts(since=log.now - 2 * DAY) == counted
    # a trial older than the topic's retention time is counted from the beginning of that time on
    log.alerts(2, at=log.now - 8 * DAY)
    log.label(2, FRAUD)
    assert log.counts(since=log.now - 9 * DAY) == counted
    set_retention(log, log.topics.shadow_alerts, 20 * DAY)
    assert log.counts(since=log.now - 9 * DAY).champion == Labelled(2, 1)


def set_retention(log: Log, topic: str, kept_ms: int) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    values = {"retention.ms": str(kept_ms), "retention.bytes": "-1"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in log.admin.incremental_alter_configs([resource]).values():
        done.result(30)
