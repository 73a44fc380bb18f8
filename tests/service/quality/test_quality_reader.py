"""Live precision read from real topics: alerts joined with labels, in any order."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.alert_records import alert
from harness.local_client import LocalClient
from harness.sidecar_process import SidecarProcess

from deploy.local.stack import Endpoints
from feature_store.catalogue import DAY_MS
from service.app import create_app
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration
WaitFor = Callable[..., object]
START = 10**12
"""Arrival of the first alerts, 2001-09-09."""


@pytest.fixture
def topics(stack: Endpoints, topic_names: Callable[[], Topics]) -> Topics:
    result = topic_names()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    read = dict.fromkeys((result.fraud_alerts, result.labels, result.chargebacks), 2)
    written = dict.fromkeys((result.audit_log, result.audit_refusals), 1)
    for name, partitions in {**read, **written}.items():
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return result


@pytest.fixture
def sidecar(stack: Endpoints, topics: Topics) -> Iterator[LocalClient]:
    settings = ServiceSettings(bootstrap_servers=stack.bootstrap_servers, topics=topics)
    with LocalClient(create_app(settings)) as client:
        yield client


def send(stack: Endpoints, topic: str, *values: dict[str, object]) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), str(value["card_id"]).encode())
    assert producer.flush(30) == 0


def chargeback(alerted: dict[str, Any], label: str) -> dict[str, object]:
    identity = {name: alerted[name] for name in ("card_id", "transaction_id")}
    return {**identity, "merchant_id": "m1", "event_time": 1, "reported_at": 2, "label": label}


def test_a_killed_sidecar_continues_and_counts_as_if_it_had_run_all_the_time(
    stack: Endpoints, topics: Topics, wait_for: WaitFor, tmp_path: Path
) -> None:
    alerts = [alert(number, START + number % 3 * DAY_MS, ()) for number in range(3_000)]
    environment = {
        "FRAUD_BOOTSTRAP_SERVERS": stack.bootstrap_servers,
        "FRAUD_WORK_DIR": str(tmp_path),
        **{f"FRAUD_TOPICS__{name.upper()}": value for name, value in topics.model_dump().items()},
    }

    def score(sidecar: SidecarProcess) -> tuple[int, int, int] | None:
        status, body = sidecar.get("v1/quality")
        assert status == 200
        return next(
            ((one["fraud"], one["genuine"], one["open"]) for one in json.loads(body)["alerts"]
             if one["by"] == "rule"), None
        )  # fmt: skip

    send(stack, topics.fraud_alerts, *alerts[:2_000])
    send(stack, topics.chargebacks, *(chargeback(one, "fraud") for one in alerts[:30]))
    with SidecarProcess(**environment) as sidecar:
        wait_for(lambda: score(sidecar) not in (None, (0, 0, 2_000)), what="some alerts and labels")
        # it is killed at any point of its reading; meanwhile the log goes on
        sidecar.kill()
    send(stack, topics.fraud_alerts, *alerts[2_000:])
    send(stack, topics.chargebacks, *(chargeback(one, "genuine") for one in alerts[20:40]))
    with SidecarProcess(**environment) as sidecar:
        wait_for(lambda: score(sidecar) == (20, 20, 2_960), what="all alerts and labels")
        sidecar.kill()
    # what retention has deleted is still counted
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    ends = [TopicPartition(topics.fraud_alerts, number, OFFSET_END) for number in range(2)]
    for future in admin.delete_records(ends).values():
        future.result(30)
    with SidecarProcess(**environment) as sidecar:
        wait_for(
            lambda: json.loads(sidecar.get("v1/quality")[1])["waiting_for"] is None, what="the topics' ends"
        )
        assert score(sidecar) == (20, 20, 2_960)
        _, body = sidecar.get("v1/quality/days?by=rule&days=2")
        days = [(day["day"], day["fraud"], day["genuine"], day["open"]) for day in json.loads(body)["days"]]
        assert days == [("2001-09-11", 6, 7, 987), ("2001-09-10", 7, 6, 987)]


def test_labels_and_chargebacks_meet_their_alerts(
    stack: Endpoints, topics: Topics, sidecar: LocalClient, wait_for: WaitFor
) -> None:
    alerts = [alert(number, START, ()) for number in range(3)]

    def identity(one: dict[str, object]) -> dict[str, object]:
        return {name: one[name] for name in ("card_id", "transaction_id")}

    def score() -> tuple[int, int, int] | None:
        result = sidecar.get("/v1/quality").json()["alerts"]
        mine = [outcome for outcome in result if (outcome["by"], outcome["name"]) == ("rule", "score")]
        return (mine[0]["fraud"], mine[0]["genuine"], mine[0]["open"]) if mine else None

    no_label = {**identity(alerts[2]), "label": "no label at all"}
    send(stack, topics.chargebacks, chargeback(alerts[0], "fraud"), no_label)
    send(stack, topics.fraud_alerts, *alerts)
    wait_for(lambda: score() == (1, 0, 2), what="the chargeback, which came first")
    verdict = {"kind": "verdict", "verdict": "genuine", "reason": "travel"}
    posted = sidecar.post("/v1/labels", json={"labels": [{**identity(alerts[1]), **verdict}]})
    assert posted.status_code == 201
    wait_for(lambda: score() == (1, 1, 1), what="the analyst's verdict")
    wait_for(lambda: sidecar.get("/v1/quality").json()["waiting_for"] is None, what="the topics' ends")
    page = sidecar.get("/metrics").text
    assert 'fraud_alert_outcomes{by="rule",name="score",outcome="genuine"} 1.0' in page
