"""The settings of the transactional producer that the operator's must not replace."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from harness.settings_of_nowhere import settings

from streaming_job.transaction import producer
from streaming_job.transaction.producer import RETRY_BACKOFF_MS, TransactionalProducer

pytestmark = pytest.mark.unit


def test_no_operator_can_hide_deliveries_or_shorten_the_time_before_a_repeated_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = MagicMock()
    monkeypatch.setattr(producer, "Producer", client)
    careless = {"delivery.report.only.error": "true", "retry.backoff.ms": "1", "retry.backoff.max.ms": "1"}
    TransactionalProducer(settings(kafka=careless), "job-0").close()
    made: dict[str, Any] = client.call_args.args[0]
    assert not made["delivery.report.only.error"]
    assert RETRY_BACKOFF_MS <= made["retry.backoff.ms"] <= made["retry.backoff.max.ms"]
