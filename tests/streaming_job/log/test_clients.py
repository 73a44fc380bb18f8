"""The Kafka clients' common settings, and the one place that makes clients."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streaming_job.log import clients
from streaming_job.log.clients import Address

pytestmark = pytest.mark.unit

ROOT = Path(clients.__file__).parents[2]
PRODUCT = ("deploy", "feature_store", "loadtests", "models", "service", "streaming_job")
CONSTRUCTORS = {"Consumer", "Producer", "AdminClient"}
MAKERS = {
    "loadtests/compare/quix/main.py",
    "streaming_job/log/clients.py",
}


@pytest.fixture(params=["Consumer", "Producer", "AdminClient"])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """The settings with which a client of the operator in `OPERATOR` is made."""
    settings: dict[str, Any] = {}
    monkeypatch.setattr(clients, request.param, settings.update)
    brokers = Address("broker:9092", {"security.protocol": "ssl", "log_level": "6", "bootstrap.servers": "x"})
    {
        "Consumer": lambda: clients.reader(brokers, "name", tuning={"log_level": 1}),
        "Producer": lambda: clients.producer(brokers, tuning={"log_level": 1}),
        "AdminClient": lambda: clients.admin(brokers),
    }[request.param]()
    return settings


def test_the_operators_settings_override_the_tuning_but_not_the_address(made: Mapping[str, Any]) -> None:
    assert made["security.protocol"] == "ssl"
    assert made["log_level"] == "6"
    assert made["bootstrap.servers"] == "broker:9092"


def test_no_operator_can_make_a_reader_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {}
    monkeypatch.setattr(clients, "Consumer", settings.update)
    careless = {
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": "true",
        "allow.auto.create.topics": "true",
        "group.id": "another",
    }
    clients.reader(Address("broker:9092", careless), "name")
    assert settings["isolation.level"] == "read_committed"
    assert settings["enable.auto.commit"] is False
    assert settings["allow.auto.create.topics"] is False
    assert settings["group.id"] == "name"


@pytest.mark.parametrize("alias", ["max.in.flight", "max.in.flight.requests.per.connection"])
def test_no_operator_can_make_a_producer_duplicate_or_lose_records(
    monkeypatch: pytest.MonkeyPatch, alias: str
) -> None:
    settings: dict[str, Any] = {}
    monkeypatch.setattr(clients, "Producer", settings.update)
    clients.producer(Address("broker:9092", {"enable.idempotence": "false", alias: "5"}))
    assert settings["enable.idempotence"] is True
    last = [value for name, value in settings.items() if name.startswith("max.in.flight")][-1]
    assert last == 1, "of two names of a setting, the last one counts"


def test_librdkafka_knows_every_setting() -> None:
    brokers = Address("localhost:1")
    clients.reader(brokers, "name", fixed=clients.MEASURING).close()
    clients.producer(brokers, tuning=clients.BULK, fixed=clients.PIPELINED)
    clients.admin(brokers)


def test_clients_are_made_in_three_modules_only() -> None:
    assert {str(path.relative_to(ROOT)) for path in _product() if any(_constructions(path))} == MAKERS


def _product() -> Iterator[Path]:
    for package in PRODUCT:
        yield from (ROOT / package).rglob("*.py")


def _constructions(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if name in CONSTRUCTORS:
                yield node
