"""Creates the project's topics with their settings; brings existing ones to these only where asked to."""

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from deploy.local import topic_comparison
from deploy.local.errors import StackError
from streaming_job.contracts.topics import Topics
from streaming_job.log import topic_reader

REQUEST_S = 30.0


def admin(bootstrap_servers: str, kafka: Mapping[str, str] | None = None) -> AdminClient:
    """An admin client that keeps quiet while the broker is still starting."""
    config: dict[str, Any] = {
        **(kafka or {}),
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "error_cb": lambda error: None,
    }
    return AdminClient(config)


def create(
    bootstrap_servers: str,
    topics: Topics,
    *,
    replay: bool = False,
    partitions: int = 2,
    replication: int = 1,
    alter: bool = True,
    kafka: Mapping[str, str] | None = None,
) -> list[str]:
    """Creates what is missing and sets every topic's configuration; partition counts of existing topics stay.

    Args:
        bootstrap_servers: the broker.
        topics: names and settings.
        replay: see `Topics.configs`.
        partitions: count for the topics that are keyed by card.
        replication: replicas of each partition of new topics.
        alter: bring existing topics to these settings, too, as the embedded stack does with its own. A
            bank's are not ours to change: a setting taken back may delete what they hold.
        kafka: more client settings (librdkafka names).

    Returns:
        Where existing topics, if left alone, are otherwise than wanted, and what to do: one line for each.

    Raises:
        StackError: the broker refused.
    """
    client = admin(bootstrap_servers, kafka)
    counts = topics.partitions(partitions)
    configs = topics.configs(replay=replay, replicas=replication)
    wanted = {name: _settings(topics, name, config) for name, config in configs.items()}
    try:
        existing = client.list_topics(timeout=REQUEST_S).topics
        new = [_new(name, counts[name], replication, wanted[name]) for name in wanted if name not in existing]
        if new:
            for creation in client.create_topics(new, request_timeout=REQUEST_S).values():
                _accept_existing(creation)
        if not alter:
            _wait_for_broker(client, {name: wanted[name] for name in wanted if name not in existing})
            return [
                line
                for name in wanted
                if name in existing
                for line in _differences(
                    client, topics, existing[name], wanted[name], counts[name], replication
                )
            ]
        other = [name for name in wanted if name in existing and not _holds(client, name, wanted[name])]
        if other:
            resources = [_resource(name, wanted[name]) for name in other]
            for change in client.incremental_alter_configs(resources, request_timeout=REQUEST_S).values():
                change.result(timeout=REQUEST_S)
        _wait_for_broker(client, wanted)
        return []
    except KafkaException as error:
        raise StackError(f"the broker did not set up the topics ({error}): look into kafka's log") from error


def _wait_for_broker(client: AdminClient, wanted: Mapping[str, Mapping[str, str | None]]) -> None:
    """Waits until the broker acts on what its controller accepted: the first record must be right already."""
    end = time.monotonic() + REQUEST_S
    left = list(wanted)
    while left:
        known = client.list_topics(timeout=REQUEST_S).topics
        left = [name for name in left if name not in known or not _holds(client, name, wanted[name])]
        if left and time.monotonic() > end:
            raise StackError(
                f"the broker does not take over the settings of {', '.join(left)}: look into its log"
            )
        if left:
            time.sleep(0.02)


def _holds(client: AdminClient, name: str, config: Mapping[str, str | None]) -> bool:
    """Whether the broker's settings of a topic are these; None stands for a value that was never set."""
    entries = _described(client, name)
    if entries is None:
        return False
    own = {
        key: entry.value
        for key, entry in entries.items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }
    return all(own.get(key) == value for key, value in config.items())


def _differences(
    client: AdminClient,
    topics: Topics,
    topic: Any,
    config: Mapping[str, str | None],
    partitions: int,
    replication: int,
) -> list[str]:
    """What a topic (its metadata) is and should not be."""
    name = topic.topic
    found = {key: entry.value for key, entry in (_described(client, name) or {}).items()}
    sizes = len(topic.partitions), min(len(part.replicas) for part in topic.partitions.values())
    # whole records of cards: the longer they lie there, the worse
    at_most = ("retention.ms",) if name == topics.dead_letters else ()
    remedies = {
        topics.transactions: f"say --partitions {sizes[0]}; more need a new topic and a new job id",
        topics.merchant_facts: "make it anew: a promise stands behind its facts in one partition only",
        topics.model_rollouts: "make it anew: the order of rollouts is that of one partition",
    }
    counted = partitions if name in remedies else None
    return [
        *topic_comparison.of_settings(name, found, config, at_most),
        *topic_comparison.of_sizes(name, sizes, (counted, replication), remedies.get(name, "")),
    ]


def _described(client: AdminClient, name: str) -> Mapping[str, Any] | None:
    (answer,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    try:
        entries: Mapping[str, Any] = answer.result(timeout=REQUEST_S)
    except KafkaException as error:
        if topic_reader.is_missing(error):
            return None
        raise
    return entries


def _accept_existing(creation: Any) -> None:
    try:
        creation.result(timeout=REQUEST_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _new(name: str, partitions: int, replication: int, config: Mapping[str, str | None]) -> NewTopic:
    given = {key: value for key, value in config.items() if value is not None}
    return NewTopic(name, num_partitions=partitions, replication_factor=replication, config=given)


def _settings(topics: Topics, name: str, config: Mapping[str, str]) -> dict[str, str | None]:
    """The wanted settings, and None (the broker's default) for those that only the other mode sets."""
    known = {key for replay in (False, True) for key in topics.configs(replay=replay)[name]}
    return {key: config.get(key) for key in sorted(known)}


def _resource(name: str, config: Mapping[str, str | None]) -> ConfigResource:
    entries = [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in config.items()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
