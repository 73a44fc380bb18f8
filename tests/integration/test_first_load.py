"""The first load of the tables: in bounded batches, before any decision; a kill during it loses nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from harness import profile_log
from thoroughness import only_thorough

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation, world
from streaming_job.contracts.topics import Topics
from streaming_job.runtime.failpoints import Failpoint

pytestmark = [pytest.mark.integration, only_thorough, pytest.mark.timeout(600)]

CARDS = 100_000
PARTITIONS = 4
AGAIN = 5_000
"""Cards of a later snapshot beside the simulated ones; half of them are not in the first snapshot."""
EVENTS = 2_000
PIECE = 2_000
"""Largest number of records that the job reads together."""


@pytest.fixture
def installed(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Installation:
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"profiles-of-{topics.transactions}"})
    broker.create(stack.bootstrap_servers, topics, partitions=PARTITIONS)
    installation = Installation(stack, topics, tmp_path, max_records=PIECE)
    installation.roll_out()
    return installation


def rows() -> Iterator[profile_log.Row]:
    """A snapshot with broken and odd records in its middle, a later one of some cards, and broken records."""
    simulated = world().cards.ids.to_pylist()
    # half of the simulated cards end the first snapshot; all simulated cards begin the second one
    others = [f"card-of-nobody-{number}" for number in range(CARDS - len(simulated) // 2)]
    known, new = simulated[::2], simulated[1::2]
    for number, row in enumerate(profile_log.snapshot([*others, *known], lsn=1)):
        yield row
        if number == CARDS // 2:
            yield from profile_log.broken(known[0])
            yield from profile_log.odd(others[0])
    unknown = [f"card-of-somebody-{number}" for number in range(AGAIN // 2)]
    yield from profile_log.snapshot([*simulated, *others[: AGAIN // 2], *unknown], lsn=5, risk_tier=3)
    yield from profile_log.broken(new[0])


def test_transactions_wait_for_the_tables_even_after_a_kill(
    installed: Installation, wait_for: Callable[..., Any]
) -> None:
    topic = installed.topics.profiles
    sent = 0
    for key, value in rows():
        installed.produce(topic, key, value)
        sent += 1
    installed.flush()
    installed.send(EVENTS)
    with installed.start(epoch_s=0.2) as job:
        wait_for(lambda: job.epochs() >= 3, deadline_s=120, what="some epochs of the load")
        job.arm(Failpoint.CUT)
        wait_for(lambda: job.reached(Failpoint.CUT), what="the end of an epoch")
    before = progress(installed)
    assert 0 < sum(record["counts"]["profile_changes"] for record in before) < CARDS
    assert not any(record["counts"]["transactions"] for record in before)
    with installed.start() as job:
        installed.caught_up(job)
        verdict = installed.audit()
        assert job.runs
    records = progress(installed)
    for group in (0, 1):
        mine = [record for record in records[len(before) :] if record["key_group"] == group]
        lag = [record["table_lag"].get(topic, 0) for record in mine]
        assert lag == sorted(lag, reverse=True)
        assert len(set(lag)) > 5  # in several batches
        assert lag[-1] == 0
        decided = [record for record in mine if record["counts"]["transactions"]]
        assert decided
        assert not any(record["table_lag"] for record in decided)
    refused = 2 * len(profile_log.broken("c"))
    assert sum(record["counts"]["profile_changes"] for record in records) == sent - refused
    letters = [orjson.loads(letter.value or b"") for letter in installed.read(installed.topics.dead_letters)]
    assert sum(letter["topic"] == topic for letter in letters) == refused
    assert verdict.late_table_changes == 0


def progress(installed: Installation) -> list[dict[str, Any]]:
    return [orjson.loads(record.value or b"") for record in installed.progress()]
