"""The history before a benchmark, sent in parts to a real broker."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest

from deploy.local.stack import Endpoints
from loadtests.bench.history import SPAN_S, History
from loadtests.faults.installation import Installation
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration


def test_parts_are_sent_one_after_another_at_their_rates(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    installed = Installation(stack, topic_names(), tmp_path)
    past = History(installed, 30_000)
    heard: list[int] = []
    begun = time.monotonic()
    past.send(10_000, per_second=5_000, meanwhile=heard.append)
    took_s = time.monotonic() - begun
    slow = installed.read(installed.topics.transactions)
    past.send(20_000, at_once=True)
    records = installed.read(installed.topics.transactions)
    assert (len(slow), len(records)) == (10_000, 30_000)
    assert len(heard) > 1
    assert heard == sorted(heard)
    assert took_s > 1.9  # from the call on, 10,000 records at 5,000 a second take 2 s

    values = [orjson.loads(record.value or b"") for record in records]
    assert len({value["transaction_id"] for value in values}) == 30_000
    times = np.sort([value["event_time"] for value in values])
    assert times[-1] - times[0] == pytest.approx(SPAN_S * 1_000, rel=0.01)
    first = [orjson.loads(record.value or b"")["event_time"] for record in slow]
    assert max(first) == times[9_999]
