"""A checkpoint that is older than the output, or damaged; offsets that somebody else has moved.

The job decides the log again from where the state stands, in silence up to where its output ends: afterwards
alerts and dead letters are those of the log, and what was there before has not changed. One installation for
all of it, with an audit of everything since the beginning after each.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local import topics as broker
from loadtests.faults.installation import Installation, world
from loadtests.faults.kills import Scene
from loadtests.faults.relay import Relay
from loadtests.oracle import Record
from loadtests.simulator.profiles import ProfileLoader

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

LATER = 4_000
"""Transactions after the copy was taken."""


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
    return Scene(relay, stack_dir, random.Random(21))


def checkpoint(relay: Relay) -> Path:
    return Path(relay.installed.settings.checkpoint)


def outputs(installed: Installation) -> dict[tuple[str, int, int], Record]:
    """Alerts and dead letters by place."""
    topics = installed.topics
    return {
        (record.topic, record.partition, record.offset): record
        for topic in (topics.fraud_alerts, topics.dead_letters)
        for record in installed.read(topic)
    }


def back_up(source: Path, target: Path) -> None:
    """Copy a checkpoint as docs/operations.md says: the log of ended epochs before the states that it names."""
    target.mkdir()
    for name in ("commits", "offsets"):
        shutil.copytree(source / name, target / name)
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("commits", "offsets"))


def test_copy_taken_while_the_job_runs_is_a_backup(scene: Scene) -> None:
    relay, installed = scene.relay, scene.relay.installed
    copy = installed.directory / "backup"
    relay.burst()
    relay.audit()
    scene.busy()
    back_up(checkpoint(relay), copy)
    ended = relay.job.epochs()
    relay.burst(LATER)
    relay.audit()
    relay.until(lambda: relay.job.epochs() > ended + 3, "epochs that the copy has not")
    scene.busy()
    relay.job.kill()
    before = outputs(installed)
    shutil.rmtree(checkpoint(relay))
    copy.rename(checkpoint(relay))
    relay.restart()
    relay.burst()
    relay.audit()
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


def newest_of(directory: Path, log: str) -> list[Path]:
    return [max((path for path in (directory / log).iterdir() if path.name.isdigit()), key=_number)]


def _number(path: Path) -> int:
    return int(path.name.split(".")[0].split("_")[0])


def newest_states(directory: Path) -> list[Path]:
    """The files of each key group's newest version of the state."""
    found = []
    for group in (path for path in (directory / "state" / "0").iterdir() if path.name.isdigit()):
        files = [path for path in group.rglob("*") if path.is_file() and path.name[0].isdigit()]
        newest = max(map(_number, files))
        found += [path for path in files if _number(path) == newest]
    return found


LAST_FILES: dict[str, Callable[[Path], list[Path]]] = {
    "offsets": lambda directory: newest_of(directory, "offsets"),
    "commits": lambda directory: newest_of(directory, "commits"),
    "state": newest_states,
    "all": lambda directory: [
        *newest_of(directory, "offsets"), *newest_of(directory, "commits"), *newest_states(directory)
    ],
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", LAST_FILES)
def test_power_cut_that_spoils_the_last_files_costs_nothing(
    relay: Relay, which: str, damage: Callable[[Path], None]
) -> None:
    relay.burst()
    relay.audit()
    relay.job.kill()
    for file in LAST_FILES[which](checkpoint(relay)):
        damage(file)
    relay.restart()
    relay.burst()
    relay.audit()


def delete_group(installed: Installation) -> None:
    admin = broker.admin(installed.stack.bootstrap_servers)
    for answer in admin.delete_consumer_groups([installed.settings.job_id]).values():
        answer.result()


def _reset(installed: Installation, to: Callable[[int], int]) -> None:
    """As kafka-consumer-groups --reset-offsets does."""
    admin: AdminClient = broker.admin(installed.stack.bootstrap_servers)
    topic, group = installed.topics.transactions, installed.settings.job_id
    places = [TopicPartition(topic, part, to(end)) for part, end in installed.ends(topic).items()]
    for answer in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values():
        answer.result()


def reset_backwards(installed: Installation) -> None:
    _reset(installed, lambda end: end // 3)


def reset_to_the_end(installed: Installation) -> None:
    _reset(installed, lambda end: end)


TOOLS = (delete_group, reset_backwards, reset_to_the_end)


@pytest.mark.parametrize("tool", TOOLS)
def test_offsets_moved_under_a_running_job_change_nothing(
    scene: Scene, tool: Callable[[Installation], None]
) -> None:
    relay = scene.relay
    scene.busy()
    tool(relay.installed)
    relay.burst()
    relay.audit()


@pytest.mark.parametrize("tool", TOOLS)
def test_offsets_moved_while_the_job_stands_change_nothing(
    scene: Scene, tool: Callable[[Installation], None]
) -> None:
    relay = scene.relay
    scene.busy()
    relay.job.kill()
    relay.burst()
    tool(relay.installed)
    relay.restart()
    # what lies before the offset of a tool is lag that nobody sees
    relay.burst()
    relay.audit()
