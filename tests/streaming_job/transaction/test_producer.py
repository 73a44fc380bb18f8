"""The transactional producer: settings that the operator's must not replace, and broken connections."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from harness.settings_of_nowhere import settings

from streaming_job.transaction import producer
from streaming_job.transaction.producer import Connections, TransactionalProducer

pytestmark = pytest.mark.unit


def test_no_operator_can_hide_deliveries_or_broken_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MagicMock()
    monkeypatch.setattr(producer, "Producer", client)
    careless = {"delivery.report.only.error": "true", "debug": "", "log_level": "0"}
    TransactionalProducer(settings(kafka=careless), "job-0").close()
    made: dict[str, Any] = client.call_args.args[0]
    assert not made["delivery.report.only.error"]
    assert made["debug"] == "broker"
    assert made["log_level"] == 7
    assert isinstance(made["logger"], Connections)


@pytest.mark.parametrize(
    ("facility", "line", "broken"),
    [
        ("FAIL", "a:9092/1: Disconnected (after 12ms in state UP) (_TRANSPORT)", True),
        (
            "FAIL",
            "TxnCoordinator/1: a:9092: Closing connection due to nodename change (after 9ms in state UP)",
            True,
        ),
        ("FAIL", "a:9092/1: 1 request(s) timed out: disconnect (after 60000ms in state REAUTH)", True),
        ("FAIL", "a:9092/1: a line of another release", True),
        ("FAIL", "a:9092/1: SASL error: in state DOWN (after 3ms in state UP) (_TRANSPORT)", True),
        ("REAUTH", "TxnCoordinator/1: Received REAUTH op", True),
        ("REQTMOUT", "a:9092/1: Timed out 1 in-flight, 0 retry-queued requests", True),
        (
            "FAIL",
            "a:9092/1: Connect to ipv4#10.0.0.1:9092 failed (after 2ms in state CONNECT, 3 identical)",
            False,
        ),
        ("FAIL", "a:9092/bootstrap: Decommissioning this broker (after 0ms in state UP)", False),
        ("STATE", "a:9092/1: Broker changed state UP -> DOWN", False),
    ],
)
def test_a_connection_that_breaks_is_told_from_one_that_is_not_made(
    facility: str, line: str, broken: bool
) -> None:
    connections = Connections()
    connections.log(10, "%s [%s] %s", facility, "rdkafka#producer-1", line)
    assert connections.broken is broken
    connections.log(10, "%s [%s] %s", "WAKEUP", "rdkafka#producer-1", "Wake-up")
    assert connections.broken is broken
