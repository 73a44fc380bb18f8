"""The topics that are archived, as the brokers have them."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException

from feature_store.errors import FraudError
from streaming_job.contracts.topics import TABLE, Topics
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import AdminClient, Brokers, describe


class ArchiveTopicError(FraudError):
    """A topic that is to be archived is missing, or is not the one that the archive began with."""


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic that decides or is decided."""

    field: str
    """Its field in the table of topics."""
    name: str
    topic_id: str
    """Kafka's id: a topic that is deleted and created again has another one."""
    is_compacted: bool
    compacted_before_ms: int
    """Arrival before which compaction may have removed records by now; 0: none are removed."""


def recreated(topic: str, place: str) -> ArchiveTopicError:
    """Return the error of a topic that is not the one with which an archive has begun."""
    return ArchiveTopicError(
        f"topic {topic} was deleted and created again since {place} began; its offsets would contradict the "
        "archive's: archive it to another directory"
    )


def require_same(client: AdminClient, topics: Iterable[ArchivedTopic], place: str) -> None:
    """Check that no topic was deleted and created again while it is archived.

    Of a topic that is missing, or without an answer, the readers of its records tell.

    Raises:
        ArchiveTopicError: one was; its records may have got the offsets after those that were read.
    """
    known = {topic.name: topic.topic_id for topic in topics}
    for name, ask in topic_reader.topic_ids(client, known).items():
        with suppress(KafkaException):
            if ask() != known[name]:
                raise recreated(name, place)


SWITCHED = ("model_rollouts", "merchant_facts")
"""Topics that a job has in another place after it was switched to a replay, whose own they were."""


def wanted(topics: Topics) -> dict[str, str]:
    """Return the names of the topics to archive, present or not, by their field of the table of topics."""
    return {
        field: name for field, row in TABLE.items() if row.is_archived and (name := getattr(topics, field))
    }


def look_up(brokers: Brokers, topics: Topics) -> list[ArchivedTopic]:
    """Return the topics to archive, in the order of the table.

    Topics that only a job with merchant facts uses may be absent.

    Raises:
        ArchiveTopicError: a topic of every job is missing, or the brokers do not answer.
    """
    found, now_ms = [], int(time.time() * 1000)
    ids = topic_reader.topic_ids(clients.admin(brokers), wanted(topics).values())
    for field, name in wanted(topics).items():
        try:
            topic_id = ids[name]()
        except KafkaException as fault:
            if topic_reader.is_missing(fault) and TABLE[field].of_facts:
                continue
            raise ArchiveTopicError(
                f"topic {name} cannot be archived ({describe(fault)}); check the brokers and "
                "FRAUD_TOPICS__..., or create it with `fraud job topics`"
            ) from fault
        kept = TABLE[field].retention
        compacted_before_ms = kept.compacted_before(now_ms) if kept.is_compacted else 0
        found.append(ArchivedTopic(field, name, topic_id, kept.is_compacted, compacted_before_ms))
    return found
