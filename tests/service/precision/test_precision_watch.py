"""A sidecar that stops a challenger in shadow by the labels of its alerts, over real topics."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from harness.alert_records import alert
from harness.job_writer import Job
from harness.local_client import LocalClient
from harness.memory_rollouts import ref
from harness.rollout_records import challenger, event, proposed
from harness.shadow_alert_records import shadow_alert
from typer.testing import CliRunner

from deploy.local.stack import Endpoints
from loadtests.simulator.rollouts import publish
from models.guards.verdict import recomputed
from models.policy import Policy
from models.rollouts.events import Type, installation
from service.app import create_app
from service.rollouts import reading
from service.rollouts.commands import app
from service.settings import ServiceSettings
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration
WaitFor = Callable[..., object]

GUARDS = {"rules": [{"name": "precision", "min_precision": 0.3, "min_labelled": 30}]}
HISTOGRAM = {"le": [step / 20 for step in range(1, 21)], "counts": [100] * 20 + [0], "sum": 1_000.0}
COUNTS: dict[str, Any] = {
    "transactions": 2_000, "decided": 0, "failures": 0, "both": 30, "only_champion": 3, "only_challenger": 3,
    "card_hours": {"both": 20, "only_champion": 2, "only_challenger": 2},
    "cards": {"both": 18, "only_champion": 2, "only_challenger": 2},
    "rows": 2_000, "time_ms": 10.0, "champion_time_ms": 10.0,
    "scores": HISTOGRAM, "champion_scores": HISTOGRAM,
}  # fmt: skip


class Bank:
    """The topics of an installation with a champion and a challenger `b` in shadow."""

    def __init__(self, servers: str, topics: Topics, job_id: str) -> None:
        self.topics, self.servers = topics, servers
        self.settings = ServiceSettings(bootstrap_servers=servers, topics=topics, job_id=job_id)
        single = (topics.model_rollouts, topics.audit_log, topics.audit_refusals, topics.job_progress)
        double = (
            topics.transactions, topics.fraud_alerts, topics.suppressed_alerts, topics.shadow_alerts,
            topics.labels, topics.chargebacks,
        )  # fmt: skip
        new = [*(NewTopic(name, 1, 1) for name in single), *(NewTopic(name, 2, 1) for name in double)]
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics(new).values():
            created.result(30)
        self.began = int(time.time() * 1000)
        publish(
            (
                *installation(ref(1), Policy(0.5, 6), "r1", "test", self.began),
                proposed("r2", challenger(ref(2)), guards=GUARDS),
                event(Type.SHADOW_STARTED, "r2", 2),
            ),
            servers,
            topics.model_rollouts,
        )
        self._producer = Producer({"bootstrap.servers": servers})
        Job(self.settings).write(
            1, 0, written_at=self.began, trials={"r2": {"seq": 2, "challengers": {"b": COUNTS}}}
        )

    def send(self, topic: str, *records: dict[str, Any]) -> None:
        for record in records:
            self._producer.produce(topic, json.dumps(record).encode(), str(record["card_id"]).encode())
        assert self._producer.flush(30) == 0

    @property
    def last(self) -> Any:
        """The last two events of the rollouts."""
        return [entry.event for entry in reading.history(self.settings, {}).entries[-2:]]


@pytest.fixture
def bank(stack: Endpoints, topic_names: Callable[[], Topics]) -> Bank:
    topics = topic_names()
    return Bank(stack.bootstrap_servers, topics, f"precision-{topics.labels}")


@pytest.fixture
def sidecar(bank: Bank) -> Iterator[LocalClient]:
    with LocalClient(create_app(bank.settings)) as client:
        yield client


def verdict_of(client: LocalClient) -> dict[str, Any]:
    answer: dict[str, Any] = client.get("/v1/rollouts/r2/verdict").json()
    return answer


def label(number: int, **said: str) -> dict[str, str]:
    identity = alert(number, 10**12)
    return {"card_id": identity["card_id"], "transaction_id": identity["transaction_id"], **said}


def shell(bank: Bank, *arguments: str) -> str:
    named = {f"FRAUD_TOPICS__{name.upper()}": topic for name, topic in bank.topics.model_dump().items()}
    variables = {"FRAUD_BOOTSTRAP_SERVERS": bank.servers, "FRAUD_JOB_ID": bank.settings.job_id, **named}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False).output


def test_a_challenger_whose_alerts_are_mostly_genuine_is_stopped_by_its_labels(
    bank: Bank, sidecar: LocalClient, wait_for: WaitFor, tmp_path: Path
) -> None:
    wait_for(lambda: sidecar.get("/v1/rollouts/r2/verdict").status_code == 200, what="the sidecar")
    wait_for(lambda: verdict_of(sidecar)["waiting_for"] is None, what="the topics' ends")
    (nothing,) = verdict_of(sidecar)["challengers"]["b"]["findings"]
    assert (nothing["verdict"], nothing["has_data"]) == ("insufficient", False)
    # 0 to 7 are alerts of both, 8 to 11 of the champion alone, 12 to 69 of the challenger alone
    now = int(time.time() * 1000)
    bank.send(bank.topics.fraud_alerts, *(alert(number, now) for number in range(12)))
    shadows = [shadow_alert(number, now, "b", alerts=number >= 12) for number in range(8, 70)]
    bank.send(bank.topics.shadow_alerts, *shadows)
    frauds = [label(number, kind="verdict", verdict="fraud") for number in (0, 8, 9, 10, 11)]
    genuine = [label(n, kind="verdict", verdict="genuine", reason="travel") for n in range(12, 22)]
    assert sidecar.post("/v1/labels", json={"labels": [*frauds, *genuine]}).status_code == 201

    def counted() -> tuple[int, int, int, int]:
        counts = verdict_of(sidecar)["challengers"]["b"]["counts"]
        both = [counts.get(name, {"fraud": 0, "genuine": 0}) for name in ("labelled", "champion_labelled")]
        return (both[0]["fraud"], both[0]["genuine"], both[1]["fraud"], both[1]["genuine"])

    wait_for(lambda: counted() == (1, 10, 5, 0), what="labels and alerts")
    # the command line, without a sidecar, counts the same from the topics
    of_shell = json.loads(shell(bank, "show", "r2", "--verdict", "--json"))
    assert of_shell["challengers"] == verdict_of(sidecar)["challengers"]
    assert of_shell["verdict"] == "insufficient"
    sample = 'fraud_trial_labelled_cards{challenger="b",outcome="genuine",role="challenger",rollout_id="r2"}'
    # metrics show the last look of the guards, which may be a second old
    wait_for(lambda: f"{sample} 10.0" in sidecar.get("/metrics").text, what="the counts as metrics")
    page = sidecar.get("/metrics").text
    assert 'fraud_guard_verdict="insufficient",guard="precision",rollout_id="r2"} 1.0' in page
    assert [entry.type for entry in bank.last] == [Type.PROPOSED, Type.SHADOW_STARTED]
    # the other alerts of the challenger alone are genuine, too
    chargebacks = [
        {**label(number), "merchant_id": "m1", "event_time": 1, "reported_at": 2, "label": "genuine"}
        for number in range(22, 70)
    ]
    bank.send(bank.topics.chargebacks, *chargebacks)
    wait_for(lambda: bank.last[-1].type is Type.ROLLED_BACK, what="the end of the rollout")
    breached, rolled_back = bank.last
    assert (breached.type, breached.challenger, breached.guard) == (Type.BREACHED, "b", "precision")
    assert rolled_back.actor == "guard"
    evidence = breached.verdict
    assert evidence["counts"]["champion_labelled"] == {"fraud": 5, "genuine": 0}
    assert evidence["counts"]["labelled"]["fraud"] == 1
    assert {**recomputed(evidence).to_json(), "commits": evidence["commits"]} == evidence
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps(evidence))
    assert shell(bank, "show", "r2", "--evidence", str(file)) == "recomputed, same verdict: breach\n"
    # the command line still counts every label of the finished rollout, with the same verdict
    over = json.loads(shell(bank, "show", "r2", "--verdict", "--json"))
    assert over["challengers"]["b"]["counts"]["labelled"] == {"fraud": 1, "genuine": 58}
    assert over["verdict"] == "breach"
