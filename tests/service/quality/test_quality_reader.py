"""Live precision read from real topics: alerts joined with labels, in any order."""

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.alert_records import alert
from harness.local_client import LocalClient

from deploy.local.stack import Endpoints
from service.app import create_app
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration
WaitFor = Callable[..., object]


@pytest.fixture
def topics(stack: Endpoints, topic_names: Callable[[], Topics]) -> Topics:
    result = topic_names()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    for name in (result.fraud_alerts, result.labels, result.chargebacks):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return result


@pytest.fixture
def sidecar(stack: Endpoints, topics: Topics) -> Iterator[LocalClient]:
    settings = ServiceSettings(bootstrap_servers=stack.bootstrap_servers, topics=topics)
    with LocalClient(create_app(settings)) as client:
        yield client


def test_labels_and_chargebacks_meet_their_alerts(
    stack: Endpoints, topics: Topics, sidecar: LocalClient, wait_for: WaitFor
) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    alerts = [alert(number, 10**12, ()) for number in range(3)]

    def send(topic: str, *values: dict[str, object]) -> None:
        for value in values:
            producer.produce(topic, json.dumps(value).encode(), str(value["card_id"]).encode())
        assert producer.flush(30) == 0

    def identity(one: dict[str, object]) -> dict[str, object]:
        return {name: one[name] for name in ("card_id", "transaction_id")}

    def score() -> tuple[int, int, int] | None:
        result = sidecar.get("/v1/quality").json()["alerts"]
        mine = [outcome for outcome in result if (outcome["by"], outcome["name"]) == ("rule", "score")]
        return (mine[0]["fraud"], mine[0]["genuine"], mine[0]["open"]) if mine else None

    chargeback = {
        **identity(alerts[0]), "merchant_id": "m1", "event_time": 1, "reported_at": 2, "label": "fraud",
    }  # fmt: skip
    send(topics.chargebacks, chargeback, {**identity(alerts[2]), "label": "no label at all"})
    send(topics.fraud_alerts, *alerts)
    wait_for(lambda: score() == (1, 0, 2), what="the chargeback, which came first")
    verdict = {"kind": "verdict", "verdict": "genuine", "reason": "travel"}
    posted = sidecar.post("/v1/labels", json={"labels": [{**identity(alerts[1]), **verdict}]})
    assert posted.status_code == 201
    wait_for(lambda: score() == (1, 1, 1), what="the analyst's verdict")
    wait_for(lambda: sidecar.get("/v1/quality").json()["waiting_for"] is None, what="the topics' ends")
    page = sidecar.get("/metrics").text
    assert 'fraud_alert_outcomes{by="rule",name="score",outcome="genuine"} 1.0' in page
