"""A checkpoint that is older than the output, or damaged; moved offsets; a killed broker; refused starts.

The job decides the log again from the state's position P, in silence up to the output's position Q.
Afterwards alerts and dead letters are those that the log implies, and those written before have not changed.
Starts with unfit checkpoints, settings or topics are refused with a remedy, and write nothing.

All tests share one installation and audit everything since the beginning, until a test deletes records.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from harness.backup import back_up
from thoroughness import THOROUGH, only_thorough

from deploy.local import topics as broker
from loadtests.faults import kills
from loadtests.faults.installation import Installation
from loadtests.faults.kills import KillTarget
from loadtests.faults.relay import Relay
from loadtests.oracle import Record
from streaming_job.log.partitioner import Partitioner

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

LATER = 4_000
"""Number of transactions sent after the checkpoint is copied."""


@pytest.fixture(scope="module")
def target(relay: Relay, stack_dir: Path) -> KillTarget:
    return KillTarget(relay, stack_dir, random.Random(21))


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
    target: KillTarget,
) -> None:
    relay, installed = target.relay, target.relay.installed
    copy = installed.directory / "backup"
    relay.burst()
    target.caught_up()
    target.busy()
    some_epochs(relay)
    back_up(checkpoint(relay), copy)
    ended = relay.job.epochs()
    relay.burst(LATER)
    target.caught_up()
    relay.until(lambda: relay.job.epochs() > ended + 3, "epochs that the copy does not have")
    target.busy()
    relay.job.kill()
    before = outputs(installed)
    shutil.rmtree(checkpoint(relay))
    copy.rename(checkpoint(relay))
    # as if a power cut had damaged the last files of the copy
    for file in everything(checkpoint(relay)):
        halved(file)
    # without offsets only the progress records show how far each key group has written
    delete_group(installed)
    job = relay.restart()
    relay.burst()
    relay.audit()
    assert "going back to epoch " in job.log
    after = outputs(installed)
    assert before.items() <= after.items()
    assert len(after) > len(before)


def some_epochs(relay: Relay) -> None:
    """Wait until so many epochs have ended that the job can go back although the last ones are damaged."""
    relay.until(lambda: relay.job.epochs() > 4, "some epochs")


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
    """The files of the two newest versions of each key group's state; the newest may be uncommitted."""
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
    some_epochs(relay)
    relay.job.kill()
    for file in last_files(checkpoint(relay)):
        damage(file)
    job = relay.restart()
    relay.burst()
    relay.audit()
    # an unfinished epoch whose offsets file is missing is begun again, without going back
    assert (last_files, damage) == (offsets, deleted) or "going back to epoch " in job.log


def delete_group(installed: Installation) -> None:
    admin = broker.admin(installed.stack.bootstrap_servers)
    for answer in admin.delete_consumer_groups([installed.settings.job_id]).values():
        answer.result(30)


def set_offsets(installed: Installation, partitions: list[TopicPartition]) -> None:
    admin: AdminClient = broker.admin(installed.stack.bootstrap_servers)
    group = ConsumerGroupTopicPartitions(installed.settings.job_id, partitions)
    for answer in admin.alter_consumer_group_offsets([group]).values():
        answer.result(30)


def reset_offsets(installed: Installation) -> None:
    """Move one offset back and the other to the end, as kafka-consumer-groups --reset-offsets does."""
    topic = installed.topics.transactions
    ends = installed.ends(topic)
    set_offsets(installed, [TopicPartition(topic, 0, ends[0] // 3), TopicPartition(topic, 1, ends[1])])


TOOLS = (delete_group, reset_offsets)


@pytest.mark.parametrize("tool", TOOLS if THOROUGH else TOOLS[1:])
def test_offsets_moved_under_a_running_job_change_nothing(
    target: KillTarget, tool: Callable[[Installation], None]
) -> None:
    relay = target.relay
    target.busy()
    tool(relay.installed)
    relay.burst()
    relay.audit()


@only_thorough
@pytest.mark.parametrize("tool", TOOLS)
def test_offsets_moved_while_the_job_is_stopped_change_nothing(
    target: KillTarget, tool: Callable[[Installation], None]
) -> None:
    relay = target.relay
    target.busy()
    relay.job.kill()
    relay.burst()
    tool(relay.installed)
    relay.restart()
    # an offset moved to the end hides the first burst from the lag: the audit has to wait for a second one
    relay.burst()
    relay.audit()


def test_the_job_survives_a_killed_and_restarted_broker(target: KillTarget) -> None:
    job = target.relay.job
    kills.server(target, "kafka")
    assert target.relay.job is job
    target.relay.audit()


@pytest.fixture(scope="module")
def stopped(relay: Relay) -> Relay:
    """A stopped job, with a copy of its checkpoint from before the last transactions."""
    installed = relay.installed
    relay.burst()
    installed.caught_up(relay.job)
    ended = relay.job.epochs()
    relay.until(lambda: relay.job.epochs() > ended, "an epoch that saves the whole burst")
    back_up(checkpoint(relay), old_checkpoint(installed))
    relay.burst()
    relay.audit()
    assert relay.job.terminate() == 0, relay.job.log
    return relay


def old_checkpoint(installed: Installation) -> Path:
    return installed.directory / "old-checkpoint"


def ends_of_outputs(installed: Installation) -> dict[str, dict[int, int]]:
    """End offsets of the output topics."""
    topics = installed.topics
    return {
        name: installed.ends(name) for name in (topics.fraud_alerts, topics.dead_letters, topics.job_progress)
    }


WAYS_OUT = "another job id", "new job id", "take over"


def assert_refused(installed: Installation, *starts: tuple[dict[str, object], str]) -> None:
    """Check that each start fails with its message, which names a way out, and writes nothing."""
    before, offsets = ends_of_outputs(installed), committed(installed)
    with ExitStack() as cleanup:
        jobs = [cleanup.enter_context(installed.start(**changes)) for changes, _ in starts]
        for job, (_, words) in zip(jobs, starts, strict=True):
            assert job.exit_code() == 1, job.log
            assert job.error.startswith(f"error: {words}"), job.log
            assert any(way in job.error for way in WAYS_OUT), job.error
    assert ends_of_outputs(installed) == before
    assert committed(installed) == offsets


def committed(installed: Installation) -> list[TopicPartition]:
    """The job's committed offsets, with metadata."""
    admin, group = broker.admin(installed.stack.bootstrap_servers), installed.settings.job_id
    result = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return sorted(result.topic_partitions, key=lambda part: (part.topic, part.partition))


def delete_records(installed: Installation, topic: str, ends: dict[int, int]) -> None:
    """Delete records as kafka-delete-records does."""
    partitions = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    admin = broker.admin(installed.stack.bootstrap_servers)
    for answer in admin.delete_records(partitions).values():
        answer.result(30)


@only_thorough
def test_checkpoint_of_another_job_or_with_other_settings_is_refused(stopped: Relay) -> None:
    installed = stopped.installed
    empty = installed.directory / "empty"
    no_checkpoint = ({"checkpoint": str(empty)}, "the topics were last written by query ")
    others = (
        ({"job_id": "another"}, "the checkpoint began with FRAUD_JOB_ID=job-"),
        ({"key_groups": 1}, "the checkpoint began with FRAUD_KEY_GROUPS=2, the settings say 1; "),
        ({"partitioner": Partitioner.CRC32}, "the checkpoint began with FRAUD_PARTITIONER=murmur2, "),
    )
    assert_refused(installed, no_checkpoint, *(others if THOROUGH else ()))
    if THOROUGH:  # the refused start has left the checkpoint of another query in `empty`
        assert_refused(installed, no_checkpoint)


@only_thorough
def test_a_state_ahead_of_the_topics_is_refused_until_they_are_restored(stopped: Relay) -> None:
    installed = stopped.installed
    saved = committed(installed)
    delete_group(installed)
    progress = installed.topics.job_progress
    delete_records(installed, progress, installed.ends(progress))
    assert_refused(installed, ({}, "the checkpoint is ahead of the topics"))
    set_offsets(installed, saved)
    stopped.restart()
    stopped.burst()
    installed.caught_up(stopped.job)
    assert stopped.job.terminate() == 0, stopped.job.log
    # the counts go on, although the progress topic was emptied: the state also holds the last record
    for record in map(progress_of, installed.progress()):
        assert record["totals"]["commits"] == record["commit_id"]


def progress_of(record: Record) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(record.value or b"")
    return decoded


@only_thorough
def test_a_log_that_no_longer_reaches_back_to_the_state_is_refused(stopped: Relay) -> None:
    installed = stopped.installed
    topic = installed.topics.transactions
    delete_records(installed, topic, {partition: end - 1 for partition, end in installed.ends(topic).items()})
    old = {"checkpoint": str(old_checkpoint(installed)), "work_dir": installed.directory / "other-work"}
    assert_refused(installed, (old, f"{topic}-"))


@only_thorough
def test_added_partitions_end_the_job_and_are_refused_at_the_next_start(stopped: Relay) -> None:
    installed = stopped.installed
    topic = installed.topics.transactions
    stopped.restart()
    stopped.burst()
    installed.caught_up(stopped.job)
    admin = broker.admin(installed.stack.bootstrap_servers)
    for added in admin.create_partitions([NewPartitions(topic, 3)]).values():
        added.result(30)
    assert stopped.job.exit_code() == 1, stopped.job.log
    assert stopped.job.error.startswith(f"error: {topic} has 3 partitions, and had 2 when the job began")
    assert_refused(installed, ({}, f"{topic} has 3 partitions, and had 2 when the job began"))
