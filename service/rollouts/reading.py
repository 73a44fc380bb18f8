"""Reading the rollout topic to its end, and what the running job says: the desk's two sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from service.rollouts.errors import StaleError, UnansweredError
from service.rollouts.history import History, Record
from service.settings import ServiceSettings, say
from streaming_job.log import topic_reader
from streaming_job.progress.reader import newest_by_group

RUNNING_S = 60.0
"""A job that has written no progress for longer does not run: an idle one does every 10 seconds."""
TIMEOUT_S = 15.0
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Job:
    """What the progress of a job's key groups says of rollouts."""

    groups: Mapping[int, Mapping[str, Any]]
    """Key group -> its newest progress record."""

    @property
    def set_aside(self) -> dict[int, str]:
        """By offset of the rollout records that the job does not use: the Reason's value."""
        told = self.groups.get(0, {}).get("rollouts_set_aside", {})
        return {int(offset): str(reason) for offset, reason in told.items()}

    def computed(self, now_s: float) -> list[str] | None:
        """Features that the running job computes, name:version; None if none runs."""
        told = self.groups.get(0)
        if told is None or "features" not in told or now_s - told["written_at"] / 1000 > RUNNING_S:
            return None
        return list(told["features"])


def job(settings: ServiceSettings) -> Job:
    """What the job's newest progress says.

    Raises:
        UnansweredError: the brokers do not answer.
    """
    topic = settings.topics.job_progress
    reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, f"{settings.job_id}-rollouts")
    try:
        return Job(newest_by_group(reader, topic, settings.job_id))
    except KafkaException as fault:
        if topic_reader.is_missing(fault):
            return Job({})
        raise _unanswered(topic, settings, fault) from fault
    finally:
        reader.close()


def history(settings: ServiceSettings, set_aside: Mapping[int, str], since: History | None = None) -> History:
    """The rollout topic up to its end.

    Args:
        settings: where.
        set_aside: by offset of the records that the job does not use: the Reason's value.
        since: what has been read of it; default: nothing.

    Raises:
        StaleError: somebody's transaction holds the end of the topic.
        UnansweredError: the brokers do not answer.
    """
    topic, known = settings.topics.model_rollouts, since or History()
    reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, f"{settings.job_id}-rollouts")
    try:
        place = TopicPartition(topic, 0, known.end)
        records = [
            Record(message.offset() or 0, message.timestamp()[1], message.value() or b"")
            for message in topic_reader.to_end(reader, place)
        ]
        _require_stable(settings, TopicPartition(topic, 0))
    except KafkaException as fault:
        raise _unanswered(topic, settings, fault) from fault
    finally:
        reader.close()
    return known.with_records(records, set_aside)


def _require_stable(settings: ServiceSettings, place: TopicPartition) -> None:
    """See that no open transaction hides records at the end: what they say is not known yet."""
    admin = AdminClient(settings.client())
    ends = [
        admin.list_offsets({place: LATEST}, request_timeout=TIMEOUT_S, isolation_level=level)[place].result()
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    ]
    if ends[0].offset < ends[1].offset:
        raise StaleError(
            "open_transaction",
            f"{place.topic} has records of a transaction that has not ended; repeat this when it has",
        )


def _unanswered(topic: str, settings: ServiceSettings, fault: KafkaException) -> UnansweredError:
    return UnansweredError(
        "brokers", f"{topic} at {settings.bootstrap_servers} cannot be read: {say(fault)}; check the settings"
    )
