"""Labels posted to the sidecar are written to their topic in the form that the job reads."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from fastapi import FastAPI
from fastapi.testclient import TestClient

from deploy.local.stack import Endpoints
from service.labels.routes import LABEL_EXAMPLE, label_routes
from service.security import problems
from service.security.roles import CALLER, Caller, Role
from streaming_job.contracts import Contract, ContractError
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode import labels
from streaming_job.labels import ledger
from streaming_job.labels.ledger import Ledger

pytestmark = pytest.mark.integration


def client_of(writer: Ledger) -> TestClient:
    app = FastAPI()
    problems.install(app)
    app.include_router(label_routes(writer, lambda: 1_800_000_000.0))

    async def as_operator(scope: Any, receive: Any, send: Any) -> None:
        scope[CALLER] = Caller("ada", Role.OPERATOR, "10.0.0.7")
        await app(scope, receive, send)

    return TestClient(as_operator)


def create(stack: Endpoints, topics: Topics) -> None:
    """Create the two topics of labels."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    for name in (topics.labels, topics.chargebacks):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)


def test_labels_are_written_all_or_none(stack: Endpoints, topic_names: Callable[[], Topics]) -> None:
    topics = topic_names()
    settings = LetterSettings(bootstrap_servers=stack.bootstrap_servers, topics=topics)
    client = client_of(Ledger(stack.bootstrap_servers, {}, topics.labels))
    answer = client.post("/v1/labels", json={"labels": [LABEL_EXAMPLE]})
    assert (answer.status_code, answer.json()["code"]) == (503, "labels_topic")
    create(stack, topics)

    without_reason = {name: value for name, value in LABEL_EXAMPLE.items() if name != "reason"}
    answer = client.post("/v1/labels", json={"labels": [LABEL_EXAMPLE, without_reason]})
    assert (answer.status_code, answer.json()["code"]) == (422, "label")
    assert "row 1: " in answer.json()["detail"]
    assert list(ledger.of_card(settings, "c-42")) == []

    for given in ([LABEL_EXAMPLE], [LABEL_EXAMPLE, {**LABEL_EXAMPLE, "reason": "other", "occurred_at": 0}]):
        answer = client.post("/v1/labels", json={"labels": given})
        assert (answer.status_code, answer.json()) == (201, {"written": len(given)})
    result = [label["record"] for label in ledger.of_card(settings, "c-42")]
    assert [(label["source"], label["reason"], label["occurred_at"]) for label in result] == [
        ("ada", "travel", 1_800_000_000_000),
        ("ada", "travel", 1_800_000_000_000),
        ("ada", "other", 0),
    ]


def test_labels_whose_commit_gets_no_answer_are_not_called_unwritten(
    stack: Endpoints, topic_names: Callable[[], Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = topic_names()
    settings = LetterSettings(bootstrap_servers=stack.bootstrap_servers, topics=topics)
    create(stack, topics)
    client = client_of(Ledger(stack.bootstrap_servers, {}, topics.labels))
    request = {"labels": [LABEL_EXAMPLE]}
    assert client.post("/v1/labels", json=request).status_code == 201
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "TIMEOUT_S", 0.0)  # the answer to the commit is not awaited
        answer = client.post("/v1/labels", json=request)
    assert (answer.status_code, answer.json()["code"]) == (503, "labels_topic")
    assert "the labels are not known to be written" in answer.json()["detail"]
    assert client.post("/v1/labels", json=request).status_code == 201
    # the commit without an answer may have succeeded
    assert len(list(ledger.of_card(settings, "c-42"))) in (2, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": "bob"},
        {"kind": "rumour"},
        {"card_id": ""},
        {"transaction_id": "t" * 65},
        {"occurred_at": -1},
        {"event_time": -1},
        {"event_time": "2026-11-26"},
    ],
)
def test_an_invalid_label_is_refused_without_a_broker(wrong: dict[str, object]) -> None:
    client = client_of(Ledger("127.0.0.1:1", {}, "labels"))
    answer = client.post("/v1/labels", json={"labels": [{**LABEL_EXAMPLE, **wrong}]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("name", ["card_id", "transaction_id"])
@pytest.mark.parametrize("character", ["\x00", "\n", "\x1f"])
def test_an_id_that_the_job_would_refuse_is_refused_without_a_broker(name: str, character: str) -> None:
    client = client_of(Ledger("127.0.0.1:1", {}, "labels"))
    labels_given = [LABEL_EXAMPLE, {**LABEL_EXAMPLE, name: f"a{character}b"}]
    answer = client.post("/v1/labels", json={"labels": labels_given})
    assert (answer.status_code, answer.json()["code"]) == (422, "label")
    assert f"row 1: not a label.v1: {name} holds a control character" in answer.json()["detail"]


def test_text_that_is_no_unicode_is_refused_in_every_identifier() -> None:
    record = {**LABEL_EXAMPLE, "source": "ada", "occurred_at": 1, "maturity": "final"}
    for name in ledger.IDENTIFIERS:
        with pytest.raises(ContractError, match=name):
            ledger.label({**record, name: "\udc80"})


def test_the_example_is_a_valid_label_for_the_job() -> None:
    record = ledger.label({**LABEL_EXAMPLE, "source": "ada", "occurred_at": 1, "maturity": "final"})
    assert labels.read(b"c-42", json.dumps(record).encode(), Contract.LABEL) == ("c-42", "t-1", False, None)
    dated = ledger.label({**record, "event_time": 7})
    assert labels.read(b"c-42", json.dumps(dated).encode(), Contract.LABEL).event_time == 7
