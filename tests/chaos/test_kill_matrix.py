"""Kills, at named steps and at any time: afterwards the alerts are exactly the oracle's.

One installation for all of it: each kill happens to the job that the one before left to recover, and the
audit is of everything since the beginning, suspicious_count of every alert included. `fraud bench chaos` does
the same some hundred times.
"""

import json
import random
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from harness.backup import back_up
from harness.job_log import AGAIN
from thoroughness import THOROUGH, only_thorough

from deploy.local import stack as embedded
from deploy.local.state import Service
from loadtests.audit.topic_log import TopicLog
from loadtests.faults import kills
from loadtests.faults.installation import Installation
from loadtests.faults.kills import IN_WORKER, Scene
from loadtests.faults.relay import Relay
from streaming_job.runtime.failpoints import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

OF_THE_JOB = tuple(Step) if THOROUGH else (Step.COMMITTED,)
OF_A_WORKER = IN_WORKER if THOROUGH else (Step.DECIDED,)
"""Every day on both sides of what a Kafka transaction says; with FRAUD_HYPOTHESIS=thorough all of them."""
KILLS = 5
SERVERS = [
    pytest.param(service, marks=() if service == "kafka" else only_thorough) for service in embedded.ALL
]
"""Postgres is killed every day, too, by the test of the profiles' way."""


@pytest.fixture(scope="module")
def scene(relay: Relay, stack_dir: Path) -> Scene:
    return Scene(relay, stack_dir, random.Random(20))


@pytest.mark.parametrize("step", OF_A_WORKER)
def test_worker_killed_at_a_step_is_replaced_without_loss_or_repetition(scene: Scene, step: Step) -> None:
    job = scene.relay.job
    kills.worker_at(step)(scene)
    assert scene.relay.job is job
    assert job.runs
    scene.caught_up()


@pytest.mark.parametrize("step", OF_THE_JOB)
def test_job_killed_at_a_step_goes_on_without_loss_or_repetition(scene: Scene, step: Step) -> None:
    kills.job_at(step)(scene)
    scene.relay.audit()
    if step is Step.COMMITTED:
        # all may have been committed before the kill: the next job is then caught up before it has started
        scene.relay.until(lambda: AGAIN in scene.relay.job.log, "transactions decided again")
    scratch = scene.relay.installed.settings.work_dir / "tmp"
    (of_process,) = scratch.iterdir()
    assert of_process.name.startswith(f"{scene.relay.job.process.pid}-")


def lag_by_offsets(installed: Installation) -> int:
    """Transactions behind, as any tool sees it."""
    servers = installed.stack.bootstrap_servers
    found = TopicLog(servers).committed(installed.settings.job_id, (installed.topics.transactions,))
    committed = {TopicPartition(*place): offset for place, offset in found.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    ends = admin.list_offsets({place: OffsetSpec.latest() for place in committed})
    return sum(ends[place].result(30).offset - offset for place, offset in committed.items())


def told(installed: Installation) -> int:
    """Transactions whose decisions have been told of."""
    return sum(
        part["end_offset"] - part["start_offset"]
        for record in installed.progress()
        for part in json.loads(record.value or b"")["partitions"]
        if part["topic"] == installed.topics.transactions
    )


def test_lag_is_true_while_a_group_stands(scene: Scene) -> None:
    installed = scene.relay.installed
    scene.caught_up()  # a group without any offsets has no lag
    worker = scene.relay.hang_at(Step.DECIDED)
    # the other group goes on
    scene.relay.until(lambda: lag_by_offsets(installed) == installed.sent - told(installed), "a true lag")
    assert lag_by_offsets(installed) > 0
    worker.kill()
    scene.caught_up()
    assert lag_by_offsets(installed) == 0


@only_thorough
def test_driver_killed_alone_takes_the_rest_along(scene: Scene) -> None:
    kills.driver_only(scene)
    scene.relay.audit()


@only_thorough
def test_killed_jvm_ends_the_job_with_its_name(scene: Scene) -> None:
    kills.jvm(scene)
    scene.relay.audit()


@only_thorough
def test_kills_at_any_time_while_transactions_flow(scene: Scene) -> None:
    for _ in range(KILLS):
        kills.job_any_time(scene)
    scene.relay.audit()


@pytest.mark.parametrize("service", SERVERS)
def test_server_that_is_killed_and_comes_back_is_survived_by_the_job(scene: Scene, service: Service) -> None:
    job = scene.relay.job
    kills.server(service)(scene)
    assert scene.relay.job is job
    scene.relay.audit()


@only_thorough
def test_second_instance_deposes_the_first(relay: Relay) -> None:
    installed, first = relay.installed, relay.job
    copy, work = installed.directory / "copy", installed.directory / "other-work"
    relay.audit()
    back_up(Path(installed.settings.checkpoint), copy)
    with installed.start(checkpoint=str(copy), work_dir=work) as second:
        relay.job = second
        relay.until(second.epochs, "the second instance")
        relay.burst()
        assert first.exit_code() == 3, first.log
        assert first.error.startswith("error: another instance of job ")
        relay.burst()
        relay.audit()
    # what it has written since, the older checkpoint decides again
    relay.restart()
    relay.audit()
