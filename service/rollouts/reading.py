"""The desk's two sources: the rollout topic, read to its end, and the running job's progress."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from service.health.groups import Groups
from service.rollouts.errors import StaleError, UnansweredError
from service.rollouts.history import History, Record
from service.settings import ServiceSettings
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import AdminClient, describe
from streaming_job.progress.reader import BLIND, newest_by_group

RUNNING_S = 60.0
"""Greatest age of a running job's newest progress record; an idle job writes one every 10 seconds."""
TIMEOUT_S = 15.0
PATIENCE_S = 2.0
"""Time to wait for the end of an open transaction; one just committed still looks open for a moment."""
POLL_S = 0.05
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Job:
    """Rollout data in the progress of a job's key groups."""

    groups: Groups
    """Key group -> its newest progress record."""

    @property
    def set_aside(self) -> dict[int, str]:
        """Offset of a rollout record that the job does not use -> a value of `contracts.Reason`."""
        set_aside = self.groups.get(0, {}).get("rollouts_set_aside", {})
        return {int(offset): str(reason) for offset, reason in set_aside.items()}

    def computed(self, now_s: float) -> list[str] | None:
        """Return the features that the running job computes, name:version; None if no job runs."""
        features = self._running(now_s).get("features")
        return None if features is None else list(features)

    def label_delay_ms(self, now_s: float) -> int | None:
        """Return the label delay of the running job; None if no job runs, or it keeps no merchant facts."""
        return self._running(now_s).get("label_delay_ms")

    def _running(self, now_s: float) -> Mapping[str, Any]:
        """Return the newest record of group 0, which describes the job; empty if the job does not run."""
        record = self.groups.get(0)
        if record is None or now_s - record["written_at"] / 1000 > RUNNING_S:
            return {}
        return record


def job(settings: ServiceSettings) -> Job:
    """Read the job's newest progress; empty if its topic does not exist.

    Raises:
        UnansweredError: the brokers do not answer, or the topic cannot be read.
    """
    topic = settings.topics.job_progress
    try:
        with closing(clients.reader(settings, f"{settings.job_id}-rollouts")) as reader:
            # a running job's records are among the last
            return Job(newest_by_group(reader, topic, settings.job_id, first_within=BLIND))
    except KafkaException as fault:
        if topic_reader.is_missing(fault):
            return Job({})
        raise _unanswered(topic, settings, fault) from fault


def history(settings: ServiceSettings, set_aside: Mapping[int, str], since: History | None = None) -> History:
    """Read the rollout topic to its end.

    Args:
        set_aside: offset of a record that the job does not use -> a value of `contracts.Reason`.
        since: history read so far; default: empty.

    Raises:
        StaleError: an open transaction holds back the end of the topic for longer than PATIENCE_S.
        UnansweredError: the brokers do not answer, or the topic cannot be read.
    """
    topic, before = settings.topics.model_rollouts, since or History()
    try:
        # wait first, so that the reading includes everything written before this call
        _await_transactions(settings, TopicPartition(topic, 0))
        with closing(clients.reader(settings, f"{settings.job_id}-rollouts")) as reader:
            records = [
                Record(message.offset() or 0, message.timestamp()[1], message.value() or b"")
                for message in follow.to_end(reader, TopicPartition(topic, 0, before.end))
            ]
    except KafkaException as fault:
        raise _unanswered(topic, settings, fault) from fault
    return before.with_records(records, set_aside)


def _await_transactions(settings: ServiceSettings, partition: TopicPartition) -> None:
    """Wait until no open transaction hides records at the end of the partition."""
    admin = clients.admin(settings)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        committed, written = (
            topic_reader.answered(partial(_end, admin, partition, level), topic_reader.NO_LEADER, TIMEOUT_S)
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        if committed >= written:
            return
        if time.monotonic() > deadline:
            raise StaleError(
                "open_transaction",
                f"{partition.topic} has records of a transaction that has not ended; retry when it has ended",
            )
        time.sleep(POLL_S)


def _end(admin: AdminClient, partition: TopicPartition, level: IsolationLevel, timeout_s: float) -> int:
    asked = admin.list_offsets({partition: LATEST}, request_timeout=timeout_s, isolation_level=level)
    return int(asked[partition].result().offset)


def _unanswered(topic: str, settings: ServiceSettings, fault: KafkaException) -> UnansweredError:
    return UnansweredError(
        "brokers",
        f"{topic} at {settings.bootstrap_servers} cannot be read: {describe(fault)}; check the settings",
    )
