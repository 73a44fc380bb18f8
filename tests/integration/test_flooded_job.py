"""A backlog that is all junk and all alerts, in batches as large as they get and with little memory."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.oracle import Kind
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MEMORY = "500m"
JUNK, JUNK_BYTES = 15_000, 10_000
"""A third of the memory; what crosses Spark is held there several times over."""
ALERTS = 20_000
"""Of some three kilobytes each."""


def test_floods_of_junk_and_of_alerts_take_no_more_memory(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    installed = Installation(stack, topic_names(), tmp_path, driver_memory=MEMORY)
    installed.roll_out(max_count_5m=1)  # any second transaction is one too many
    rng = random.Random(7)
    installed.send_raw([rng.randbytes(JUNK_BYTES) for _ in range(JUNK)])
    installed.send(ALERTS)
    with installed.start() as job:
        installed.caught_up(job)
        verdict = installed.audit()
        assert job.runs
    assert verdict.kinds[Kind.DEAD_LETTER] >= JUNK
    assert verdict.kinds[Kind.ALERT] > 0.9 * ALERTS
