"""Starts with unfit checkpoints, settings or topics are refused with a remedy, and write nothing.

One installation for all of it. The topics lose records on the way, so there is no audit after the first test.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions
from harness.backup import back_up
from thoroughness import THOROUGH, only_thorough

from deploy.local import topics as broker
from loadtests.faults.installation import Installation
from loadtests.faults.relay import Relay
from loadtests.oracle import Record
from streaming_job.log.partitioner import Partitioner

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

Ends = dict[str, dict[int, int]]


@pytest.fixture(scope="module")
def relay(installed: Installation) -> Iterator[Relay]:
    """A stopped job, with a copy of its checkpoint from before the last transactions."""
    result = Relay(installed)
    try:
        result.burst()
        installed.caught_up(result.job)
        ended = result.job.epochs()
        result.until(lambda: result.job.epochs() > ended, "an epoch with all of it")
        back_up(Path(installed.settings.checkpoint), old_checkpoint(installed))
        result.burst()
        result.audit()
        assert result.job.terminate() == 0, result.job.log
        yield result
    finally:
        result.job.kill()


def old_checkpoint(installed: Installation) -> Path:
    return installed.directory / "old-checkpoint"


def ends_of_outputs(installed: Installation) -> Ends:
    """End offsets of the output topics."""
    topics = installed.topics
    return {
        name: installed.ends(name) for name in (topics.fraud_alerts, topics.dead_letters, topics.job_progress)
    }


def assert_refused(installed: Installation, *starts: tuple[dict[str, object], str]) -> None:
    """Check that each start fails with its message and writes nothing."""
    before, offsets = ends_of_outputs(installed), committed(installed)
    with ExitStack() as cleanup:
        jobs = [cleanup.enter_context(installed.start(**changes)) for changes, _ in starts]
        for job, (_, words) in zip(jobs, starts, strict=True):
            assert job.exit_code() == 1, job.log
            assert job.error.startswith(f"error: {words}"), job.log
            assert "another job id" in job.error or "new job id" in job.error
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


def test_checkpoint_of_another_job_or_with_other_settings_is_refused(relay: Relay) -> None:
    installed = relay.installed
    empty = installed.directory / "empty"
    no_checkpoint = ({"checkpoint": str(empty)}, "the topics were last written by query ")
    others = (
        ({"key_groups": 1}, "the checkpoint began with FRAUD_KEY_GROUPS=2, the settings say 1; "),
        ({"partitioner": Partitioner.CRC32}, "the checkpoint began with FRAUD_PARTITIONER=murmur2, "),
    )
    another_job = ({"job_id": "another"}, "the checkpoint began with FRAUD_JOB_ID=job-")
    assert_refused(installed, another_job, no_checkpoint, *(others if THOROUGH else ()))
    if THOROUGH:  # now it is the checkpoint of another query
        assert_refused(installed, no_checkpoint)


@only_thorough
def test_a_state_ahead_of_the_topics_is_refused_until_they_are_restored(relay: Relay) -> None:
    installed = relay.installed
    admin, group = broker.admin(installed.stack.bootstrap_servers), installed.settings.job_id
    saved = committed(installed)
    for deleted in admin.delete_consumer_groups([group]).values():
        deleted.result(30)
    progress = installed.topics.job_progress
    delete_records(installed, progress, installed.ends(progress))
    assert_refused(installed, ({}, "the checkpoint is ahead of the topics"))
    for restored in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, saved)]).values():
        restored.result(30)
    relay.restart()
    relay.burst()
    installed.caught_up(relay.job)
    assert relay.job.terminate() == 0, relay.job.log
    # the counts go on, although the progress topic has forgotten them: the state has the last record, too
    for record in map(progress_of, installed.progress()):
        assert record["totals"]["commits"] == record["commit_id"]


def progress_of(record: Record) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(record.value or b"")
    return decoded


def test_a_log_that_no_longer_reaches_back_to_the_state_is_refused(relay: Relay) -> None:
    installed = relay.installed
    topic = installed.topics.transactions
    delete_records(installed, topic, {partition: end - 1 for partition, end in installed.ends(topic).items()})
    old = {"checkpoint": str(old_checkpoint(installed)), "work_dir": installed.directory / "other-work"}
    assert_refused(installed, (old, f"{topic}-"))


@only_thorough
def test_added_partitions_end_the_job_and_are_refused_at_the_next_start(relay: Relay) -> None:
    installed = relay.installed
    topic = installed.topics.transactions
    relay.restart()
    relay.burst()
    installed.caught_up(relay.job)
    admin = broker.admin(installed.stack.bootstrap_servers)
    for added in admin.create_partitions([NewPartitions(topic, 3)]).values():
        added.result(30)
    assert relay.job.exit_code() == 1, relay.job.log
    assert relay.job.error.startswith(f"error: {topic} has 3 partitions, and had 2 when the job began")
    assert_refused(installed, ({}, f"{topic} has 3 partitions, and had 2 when the job began"))
