"""Kills of all kinds and network faults, in random order, on one job; then one audit of everything.

The job reaches the broker through a proxy, and its profiles come from Debezium. Cards are few, so that each
is used often, but enough that none gets hot: only exact windows show every lost or repeated transaction.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from harness import kills, proxy
from harness.proxy import HOST, Proxy
from harness.relay import Relay
from thoroughness import only_thorough

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from loadtests.simulator.profiles import ProfileLoader
from loadtests.simulator.world import World
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(10_800)]

CARDS = 2_000
KILLS, FAULTS = 200, 100
TIMEOUT_MS = 10_000
"""Timeout of Kafka transactions, ms: the least that the job allows; no network fault lasts longer."""


@pytest.fixture
def network(stack: Endpoints) -> Iterator[Proxy]:
    assert stack.proxied is not None
    with Proxy(*stack.proxied) as result:
        yield result


@pytest.fixture
def relay(
    stack: Endpoints, network: Proxy, topic_names: Callable[[], Topics], tmp_path: Path
) -> Iterator[Relay]:
    assert stack.proxied is not None
    cards = World.create(1, CARDS)
    ProfileLoader(stack.postgres_dsn).load(cards)
    servers = f"{HOST}:{stack.proxied[0]}"
    installed = Installation(
        stack, topic_names(), tmp_path, cards, bootstrap_servers=servers, transaction_timeout_ms=TIMEOUT_MS
    )
    installed.roll_out()
    result = Relay(installed)
    try:
        yield result
    finally:
        result.job.kill()


@only_thorough
def test_kills_and_network_faults_lose_and_repeat_nothing(
    relay: Relay, network: Proxy, stack: Endpoints, stack_dir: Path
) -> None:
    target = kills.KillTarget(relay, stack_dir, random.Random(1))
    for name in kills.draw(target.chance, KILLS):
        kills.KILLS[name](target)
        target.caught_up()
    for fault in proxy.draw(target.chance, FAULTS, TIMEOUT_MS / 1000):
        before = len(network.injected)
        network.arm(fault)
        relay.burst()
        relay.until(lambda: len(network.injected) > before, f"a request for {fault}")  # noqa: B023
        target.caught_up()
    relay.audit()
    assert newest_profiles(relay.installed) == rows(stack.postgres_dsn)


def newest_profiles(installed: Installation) -> dict[str, tuple[str, float]]:
    """Each card's status and credit limit, by its last change on the profile topic."""
    newest = {}
    for record in installed.read(installed.topics.profiles):
        after = json.loads(record.value)["after"] if record.value else None
        newest[json.loads(record.key or b"")["card_id"]] = after and (after["status"], after["credit_limit"])
    return {card: profile for card, profile in newest.items() if profile}


def rows(dsn: str) -> dict[str, tuple[str, float]]:
    """Each card's status and credit limit in Postgres."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select card_id, status, credit_limit from card_profiles").fetchall()
    return {card: (status, float(limit)) for card, status, limit in found}
