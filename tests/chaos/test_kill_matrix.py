"""Kills, at named steps and at any time: afterwards the alerts are exactly the oracle's.

One installation for all of it: each kill happens to the job that the one before left to recover, and the
audit is of everything since the beginning, suspicious_count of every alert included. `fraud bench chaos` does
the same some hundred times.
"""

import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from thoroughness import THOROUGH, only_thorough

from deploy.local import stack as embedded
from deploy.local.state import Service
from loadtests.faults import kills
from loadtests.faults.installation import Installation, world
from loadtests.faults.job_process import PATIENCE_S
from loadtests.faults.kills import Scene
from loadtests.faults.relay import Relay
from loadtests.simulator.profiles import ProfileLoader
from streaming_job.runtime.failpoints import Step

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

WaitFor = Callable[..., object]
STEPS = tuple(Step) if THOROUGH else (Step.OFFSETS_ADDED, Step.COMMITTED)
"""Every day one on each side of the commit; with FRAUD_HYPOTHESIS=thorough all of them."""
KILLS = 5 if THOROUGH else 1
SERVERS = [
    pytest.param(service, marks=() if service == "kafka" else only_thorough) for service in embedded.ALL
]
"""Postgres is killed every day, too, by the test of the profiles' way."""


@pytest.fixture(scope="module")
def relay(installed: Installation) -> Iterator[Relay]:
    ProfileLoader(installed.stack.postgres_dsn).load(world())
    made = Relay(installed)
    try:
        yield made
    finally:
        made.job.kill()


@pytest.fixture(scope="module")
def scene(relay: Relay, stack_dir: Path) -> Scene:
    return Scene(relay, stack_dir, random.Random(20))


@pytest.mark.parametrize("step", STEPS)
def test_job_killed_at_a_step_goes_on_without_loss_or_repetition(scene: Scene, step: Step) -> None:
    kills.driver_at(step)(scene)
    scene.relay.audit()
    assert ("had been written before" in scene.relay.job.log) == (step is Step.COMMITTED)
    scratch = scene.relay.installed.settings.work_dir / "tmp"
    (of_process,) = scratch.iterdir()
    assert of_process.name.startswith(f"{scene.relay.job.process.pid}-")


def lag_by_admin(installed: Installation) -> int:
    """Transactions behind, as any tool sees it."""
    admin = AdminClient({"bootstrap.servers": installed.stack.bootstrap_servers})
    group = installed.settings.job_id
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    committed = {
        TopicPartition(part.topic, part.partition): part.offset
        for part in found.topic_partitions
        if part.topic == installed.topics.transactions
    }
    ends = admin.list_offsets({place: OffsetSpec.latest() for place in committed})
    return sum(ends[place].result(30).offset - offset for place, offset in committed.items())


def test_killed_worker_is_survived_by_the_stream_and_lag_is_true_meanwhile(scene: Scene) -> None:
    installed = scene.relay.installed
    scene.relay.burst()
    scene.caught_up()  # a group without any offsets has no lag
    worker = scene.relay.stand_still(Step.APPLIED)
    decided = sum(
        part["end_offset"] - part["start_offset"]
        for record in installed.read(installed.topics.job_progress)
        for part in json.loads(record.value or b"")["partitions"]
        if part["topic"] == installed.topics.transactions
    )
    assert lag_by_admin(installed) == installed.sent - decided > 0
    worker.kill()
    scene.relay.audit()
    assert lag_by_admin(installed) == 0


@only_thorough
def test_killed_planning_process_ends_the_job_with_its_name(scene: Scene) -> None:
    kills.planner(scene)
    scene.relay.audit()


def test_killed_jvm_ends_the_job_with_its_name(scene: Scene) -> None:
    kills.jvm(scene)
    scene.relay.audit()


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


def test_second_instance_takes_over(relay: Relay, wait_for: WaitFor) -> None:
    first = relay.job
    with ExitStack() as cleanup:
        cleanup.callback(first.kill)
        second = relay.installed.start()
        relay.job = second
        wait_for(lambda: " runs" in second.log, deadline_s=PATIENCE_S, what="the second instance")
        relay.burst()
        assert first.ended() == 3
        assert first.error.startswith("error: another instance of job ")
    if not second.runs:  # both ran into the same batch; the next start goes on
        relay.restart()
    relay.audit()


def test_wrong_checkpoints_are_refused_at_the_start(relay: Relay) -> None:
    installed, rolled_back = relay.installed, relay.installed.directory / "rolled-back"
    relay.job.process.send_signal(signal.SIGTERM)
    assert relay.job.ended() == 0
    shutil.copytree(installed.settings.checkpoint, rolled_back)
    relay.restart()
    relay.burst()
    relay.audit()
    relay.job.kill()
    before = len(installed.read(installed.topics.job_progress))
    wrong: list[tuple[dict[str, object], str]] = [
        ({"checkpoint": str(installed.directory / "lost")}, "error: the checkpoint is empty, but job "),
        ({"checkpoint": str(rolled_back)}, "error: the topics are at batch "),
        ({"key_groups": 3}, "error: the checkpoint has 2 key groups, the settings ask for 3; "),
    ]
    with ExitStack() as cleanup:
        jobs = [cleanup.enter_context(installed.start(**changes)) for changes, _ in wrong]
        for job, (_, words) in zip(jobs, wrong, strict=True):
            assert job.ended() == 1, job.log
            assert job.error.startswith(words)
    assert len(installed.read(installed.topics.job_progress)) == before
    installed.audit()
