"""Spoiled records through the running job: it goes on, and each becomes a decision or a dead letter."""

import random
import time

import pytest
from harness.raw_records import mutated, seeds
from thoroughness import only_thorough

from loadtests.faults.installation import Installation
from loadtests.oracle import Kind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600), only_thorough]

RECORDS = 1_250_000
CHUNK = 1_000
SPOILED = 0.8
"""Share of the records; some of them stay good."""


def test_spoiled_records_neither_stop_the_job_nor_get_lost(installed: Installation) -> None:
    rng = random.Random(7)

    def send(records: int) -> None:
        for _ in range(records // CHUNK):
            now = int(time.time() * 1000)
            values: list[bytes | None] = [seeds(rng, now) for _ in range(CHUNK)]
            # one key: a card lies in one partition, whatever has become of its name
            installed.send_raw(
                [
                    mutated(rng, value, seeds(rng, now)) if value and rng.random() < SPOILED else value
                    for value in values
                ]
            )

    send(RECORDS // 2)  # a backlog, in large batches
    with installed.start() as job:
        send(RECORDS // 2)
        installed.caught_up(job)
        verdict = installed.audit()
        assert job.runs
    assert sum(verdict.kinds.values()) == RECORDS
    assert RECORDS / 4 < verdict.kinds[Kind.DEAD_LETTER] < RECORDS * 9 / 10
    assert len(verdict.dead_letters) > 8
