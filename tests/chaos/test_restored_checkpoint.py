"""A checkpoint that is older than the output, or damaged; moved offsets; a killed broker.

The job decides the log again from the state's position P, in silence up to the output's position Q.
Afterwards alerts and dead letters are those of the log, and those written before have not changed. One
installation for
all of it, with an audit of everything since the beginning after each.
"""

import random
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.backup import back_up
from thoroughness import THOROUGH, only_thorough

from deploy.local import topics as broker
from loadtests.faults import kills
from loadtests.faults.installation import Installation
from loadtests.faults.kills import Scene
from loadtests.faults.relay import Relay
from loadtests.oracle import Record

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

LATER = 4_000
"""Transactions after the copy was taken."""


@pytest.fixture(scope="module")
def scene(relay: Relay, stack_dir: Path) -> Scene:
    return Scene(relay, stack_dir, random.Random(21))


def checkpoint(relay: Relay) -> Path:
    return Path(relay.installed.settings.checkpoint)


def outputs(installed: Installation) -> dict[tuple[str, int, int], Record]:
    """Alerts and dead letters by partition and offset."""
    topics = installed.topics
    return {
        (record.topic, record.partition, record.offset): record
        for topic in (topics.fraud_alerts, topics.dead_letters)
        for record in installed.read(topic)
    }


def test_a_damaged_copy_of_a_running_jobs_checkpoint_is_a_backup_even_without_offsets(
    scene: Scene,
) -> None:
    relay, installed = scene.relay, scene.relay.installed
    copy = installed.directory / "backup"
    relay.burst()
    scene.caught_up()
    scene.busy()
    back_up(checkpoint(relay), copy)
    ended = relay.job.epochs()
    relay.burst(LATER)
    scene.caught_up()
    relay.until(lambda: relay.job.epochs() > ended + 3, "epochs that the copy has not")
    scene.busy()
    relay.job.kill()
    before = outputs(installed)
    shutil.rmtree(checkpoint(relay))
    copy.rename(checkpoint(relay))
    # whose last files a power cut has damaged
    for file in everything(checkpoint(relay)):
        halved(file)
    # and only the groups' progress records show how far they have written
    delete_group(installed)
    job = relay.restart()
    relay.burst()
    relay.audit()
    assert "going back to epoch " in job.log
    after = outputs(installed)
    assert before.items() <= after.items()
    assert len(after) > len(before)


def halved(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def deleted(file: Path) -> None:
    file.unlink()


DAMAGES = (halved, emptied, deleted)


def newest(files: Iterable[Path], versions: int = 1) -> list[Path]:
    """Files whose names begin with the greatest numbers."""
    numbered = [(int(match[0]), file) for file in files if (match := re.match(r"\d+", file.name))]
    last = sorted({number for number, _ in numbered})[-versions:]
    return [file for number, file in numbered if number in last]


def offsets(directory: Path) -> list[Path]:
    return newest((directory / "offsets").iterdir())


def commits(directory: Path) -> list[Path]:
    return newest((directory / "commits").iterdir())


def states(directory: Path) -> list[Path]:
    """The committed state of each key group, and a newer one that may not be committed."""
    groups = [path for path in (directory / "state" / "0").iterdir() if path.name.isdigit()]
    return [file for group in groups for file in newest(group.iterdir(), versions=2)]


def logs(directory: Path) -> list[Path]:
    return [*offsets(directory), *commits(directory)]


def everything(directory: Path) -> list[Path]:
    return [*offsets(directory), *commits(directory), *states(directory)]


@only_thorough
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("last_files", [offsets, commits, states, everything])
def test_a_power_cut_that_damages_the_last_files_loses_nothing(
    relay: Relay, last_files: Callable[[Path], list[Path]], damage: Callable[[Path], None]
) -> None:
    relay.burst()
    relay.audit()
    relay.job.kill()
    for file in last_files(checkpoint(relay)):
        damage(file)
    job = relay.restart()
    relay.burst()
    relay.audit()
    # offsets of an unfinished epoch may be ignored: the epoch is begun again
    assert (last_files, damage) == (offsets, deleted) or "going back to epoch " in job.log


def delete_group(installed: Installation) -> None:
    admin = broker.admin(installed.stack.bootstrap_servers)
    for answer in admin.delete_consumer_groups([installed.settings.job_id]).values():
        answer.result(30)


def reset_offsets(installed: Installation) -> None:
    """Move one offset back and the other to the end, as kafka-consumer-groups --reset-offsets does."""
    admin: AdminClient = broker.admin(installed.stack.bootstrap_servers)
    topic, group = installed.topics.transactions, installed.settings.job_id
    ends = installed.ends(topic)
    partitions = [TopicPartition(topic, 0, ends[0] // 3), TopicPartition(topic, 1, ends[1])]
    for answer in admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, partitions)]
    ).values():
        answer.result(30)


TOOLS = (delete_group, reset_offsets)


@pytest.mark.parametrize("tool", TOOLS if THOROUGH else TOOLS[1:])
def test_offsets_moved_under_a_running_job_change_nothing(
    scene: Scene, tool: Callable[[Installation], None]
) -> None:
    relay = scene.relay
    scene.busy()
    tool(relay.installed)
    relay.burst()
    relay.audit()


@only_thorough
@pytest.mark.parametrize("tool", TOOLS)
def test_offsets_moved_while_the_job_is_stopped_change_nothing(
    scene: Scene, tool: Callable[[Installation], None]
) -> None:
    relay = scene.relay
    scene.busy()
    relay.job.kill()
    relay.burst()
    tool(relay.installed)
    relay.restart()
    # a lag would not be seen in the partition whose offset is at the end
    relay.burst()
    relay.audit()


def test_the_job_survives_a_killed_and_restarted_broker(scene: Scene) -> None:
    job = scene.relay.job
    kills.server("kafka")(scene)
    assert scene.relay.job is job
    scene.relay.audit()
