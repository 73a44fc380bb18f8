"""The topics of a replay: created before its first start, with a rollout of its own if one was asked for."""

import math
from collections.abc import Mapping

from confluent_kafka import KafkaException

from deploy.local import topics as broker
from deploy.replay.record import Replay, ReplayError
from loadtests.audit.topic_log import TopicLog
from loadtests.simulator.rollouts import publish
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import describe
from streaming_job.settings import Arrival, JobSettings


def create(live: JobSettings, replay: Replay) -> None:
    """Create the missing topics, and write the rollout; may be repeated after it was killed at any point.

    The rollout is the first of its topic, so it decides from the beginning of the log. It asks for no second
    person, because it lets no model decide anything that customers see.
    """
    settings, (partitions, replication) = replay.settings(live), shape(live)
    broker.create(
        live.bootstrap_servers, settings.topics, replay=live.arrival is Arrival.CREATE,
        partitions=partitions, replication=replication, alter=False, kafka=live.kafka,
        only=[getattr(settings.topics, field) for field in replay.own_fields],
    )  # fmt: skip
    rollout, topic = replay.rollout, settings.topics.model_rollouts
    if rollout is None or sum(TopicLog(live.bootstrap_servers, live.kafka).ends(topic).values()) >= 2:
        return
    events = installation(
        ModelRef.from_json(rollout["model"]), Policy.from_json(rollout["policy"]), f"replay-{replay.name}",
        "fraud replay", rollout["created_at"], reason="decides in a replay",
    )  # fmt: skip
    # repeated events have the same keys and content, so the job ignores them
    publish(events, live.bootstrap_servers, topic, live.kafka)


def shape(live: JobSettings) -> tuple[int, int]:
    """Return the number of partitions of the transactions, and their replicas.

    Raises:
        ReplayError: the topic does not exist, or the brokers do not answer.
    """
    topic = live.topics.transactions
    try:
        metadata = broker.admin(live.bootstrap_servers, live.kafka).list_topics(topic, 15.0).topics[topic]
    except KafkaException as fault:
        raise ReplayError(f"no answer from the brokers ({describe(fault)}); check their address") from fault
    if not metadata.partitions:
        raise ReplayError(f"topic {topic} does not exist; correct FRAUD_TOPICS__TRANSACTIONS")
    return len(metadata.partitions), min(len(part.replicas) for part in metadata.partitions.values())


def foreign(live: JobSettings, replay: Replay) -> dict[str, int]:
    """Return those of the replay's own topics that have records already, with their number of offsets."""
    topics, log = replay.topics(live.topics), TopicLog(live.bootstrap_servers, live.kafka)
    used: dict[str, int] = {}
    with_client = clients.reader(live, "fraud-replay")
    try:
        for topic in (getattr(topics, field) for field in replay.own_fields):
            if topic_reader.exists(with_client, topic) and (offsets := sum(log.ends(topic).values())):
                used[topic] = offsets
    finally:
        with_client.close()
    return used


def decided(log: TopicLog, settings: JobSettings) -> dict[int, int]:
    """Return the offset up to which a job has decided each partition that it has begun."""
    done = log.committed(settings.job_id, (settings.topics.transactions,))
    return {part: offset for (_, part), offset in done.items()}


def lag(log: TopicLog, settings: JobSettings) -> int:
    """Return by how many transactions a job's output is behind the log."""
    return remaining(decided(log, settings), log.ends(settings.topics.transactions))


def remaining(done: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """Return the number of offsets from where a job is to given ends."""
    return sum(max(0, end - done.get(part, 0)) for part, end in ends.items())


def seconds(records: int, rate: float) -> float:
    """Return how long a number of records takes; infinite at rate 0."""
    return records / rate if rate else math.inf
