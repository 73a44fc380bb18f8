"""Damaged records in a running job: it continues, and each becomes a decision or a dead letter."""

import random
import time

import pytest
from harness.raw_records import mutated, seeds
from thoroughness import only_thorough

from loadtests.faults.installation import Installation, world
from loadtests.oracle import Kind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600), only_thorough]

RECORDS = 1_250_000
CHUNK = 1_000
SPOILED = 0.8
"""Share of damaged records; some of them remain valid."""
ASTRAY = 10
"""Number of records of a chunk that are sent to a random partition."""


def test_damaged_records_neither_stop_the_job_nor_get_lost(installed: Installation) -> None:
    rng = random.Random(7)
    cards = world().cards.ids.to_pylist()

    def send(records: int) -> None:
        for _ in range(records // CHUNK):
            now = int(time.time() * 1000)
            values: list[bytes | None] = [
                mutated(rng, seeds(rng, now, cards), seeds(rng, now, cards))
                if rng.random() < SPOILED
                else seeds(rng, now, cards)
                for _ in range(CHUNK)
            ]
            # damaged or not, a record goes to the partition of the card it names; the last ASTRAY go to any
            installed.send_raw(values[:-ASTRAY])
            installed.send_raw(values[-ASTRAY:], partition=rng.randrange(2))

    send(RECORDS // 2)  # a backlog, which the job reads in large mini-batches
    with installed.start() as job:
        send(RECORDS // 2)
        installed.caught_up(job)
        verdict = installed.audit()
        assert job.runs
    assert sum(verdict.kinds.values()) == RECORDS
    assert RECORDS / 4 < verdict.kinds[Kind.DEAD_LETTER] < RECORDS * 9 / 10
    assert len(verdict.dead_letters) > 8
    assert verdict.dead_letters["wrong_partition"]
