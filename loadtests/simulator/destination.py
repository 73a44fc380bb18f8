"""Check of the topics that simulated or replayed records are sent to."""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaException

from loadtests.rig.send import SendError
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import AdminClient, Brokers, describe

ANSWER_S = 10.0


def check(brokers: Brokers, topics: Iterable[str], archive_from_ms: int | None = None) -> None:
    """Check that the topics exist and, for an archive, take its timestamps and keep records of its age.

    Args:
        archive_from_ms: oldest arrival of an archive, whose records keep their times as Kafka timestamps.

    Raises:
        SendError: no broker answers, a topic must be created or changed, or its settings cannot be read.
    """
    admin = clients.admin(brokers)
    try:
        existing = admin.list_topics(timeout=ANSWER_S).topics
    except KafkaException as error:
        servers = brokers.bootstrap_servers
        raise SendError(
            f"no Kafka at {servers} ({describe(error)}); start it with `fraud stack up`"
        ) from error
    for topic in topics:
        if topic not in existing:
            raise SendError(f"topic {topic} does not exist; `fraud stack up` creates it")
        if archive_from_ms is not None:
            _check_archive_topic(admin, topic, archive_from_ms)


def _check_archive_topic(admin: AdminClient, topic: str, first_ms: int) -> None:
    try:
        settings = topic_reader.settings_of(admin, topic, ANSWER_S)
    except (KafkaException, TimeoutError) as error:
        raise SendError(
            f"the configuration of topic {topic} cannot be read: {describe(error)}; check the brokers "
            "and the permissions"
        ) from error
    if settings["message.timestamp.type"].value != "CreateTime":
        raise SendError(
            f"topic {topic} is stamped by the broker, but a replay needs its own timestamps; "
            "create it with message.timestamp.type=CreateTime (`fraud stack up --replay`)"
        )
    retention_ms = int(settings["retention.ms"].value)
    if 0 <= retention_ms < time.time() * 1_000 - first_ms:
        raise SendError(
            f"topic {topic} would delete the replay's oldest records at once; set its retention.ms to -1"
        )
