"""Three brokers: one at a time is killed, restarted or loses its disk while transactions flow.

Each topic has three replicas, of which two must have a record before its producer counts it as written, and
no replica that lacks records becomes the leader. So no fault of one broker loses a record.
"""

from collections.abc import Iterator

import pytest
from harness.three_brokers import Trio
from thoroughness import only_thorough

from deploy.local import stack
from deploy.local.state import BROKERS, Service

pytestmark = [pytest.mark.chaos, pytest.mark.without_stack, pytest.mark.timeout(900)]

RATE = 150
"""Transactions per second: enough for several alerts a second, few enough for an audit of seconds."""


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """A running job on three brokers."""
    directory = tmp_path_factory.mktemp("three-brokers")
    try:
        trio = Trio.up(directory)
        with trio.installed.start(key_groups=2) as job:
            trio.job = job
            trio.installed.send(1_000)
            trio.installed.caught_up(job)
            yield trio
    finally:
        stack.down(directory)


@only_thorough
def test_the_killed_leader_of_the_input_is_replaced_and_returns(trio: Trio) -> None:
    topic = trio.installed.topics.transactions
    with trio.load(RATE) as watch:
        leader = trio.leader(topic)
        trio.kill(leader)
        trio.until_in_sync(2, 2)
        assert trio.leader(topic) != leader
        trio.until_alerts(watch)
        trio.restore()
        trio.until_alerts(watch)
    trio.audit()


@only_thorough
@pytest.mark.parametrize("broker", BROKERS)
def test_each_broker_may_be_killed(trio: Trio, broker: Service) -> None:
    with trio.load(RATE) as watch:
        trio.kill(broker)
        trio.until_in_sync(2, 2)
        trio.until_alerts(watch)
        trio.restore()
        trio.until_alerts(watch)
    trio.audit()


@only_thorough
def test_the_controller_may_be_killed(trio: Trio) -> None:
    with trio.load(RATE) as watch:
        controller = trio.controller()
        trio.kill(controller)
        trio.until_in_sync(2, 2)
        assert trio.controller() != controller
        trio.until_alerts(watch)
        trio.restore()
        trio.until_alerts(watch)
    trio.audit()


@only_thorough
def test_a_rolling_restart_goes_unnoticed(trio: Trio) -> None:
    with trio.load(RATE) as watch:
        for broker in BROKERS:
            stack.stop(trio.directory, broker)
            trio.until_alerts(watch)
            trio.restore()
    trio.audit()


@only_thorough
def test_a_broker_may_lose_its_disk(trio: Trio) -> None:
    with trio.load(RATE) as watch:
        trio.lose_disk(trio.leader(trio.installed.topics.transactions))
        trio.until_in_sync(2, 2)
        trio.until_alerts(watch)
        trio.restore()
        trio.until_alerts(watch)
    trio.audit()
