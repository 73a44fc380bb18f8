"""Creation of the project's topics with their settings; existing topics are altered, or only compared."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from deploy.local.errors import StackError
from deploy.local.waiting import Patience
from streaming_job.contracts.topics import Topics
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Address, AdminClient
from streaming_job.runtime.topic_comparison import Actual, of_topic

POLL_S = 0.02
REQUEST_S = 30.0
MOST_REPLICAS = 3


def admin(bootstrap_servers: str, kafka: Mapping[str, str] | None = None) -> AdminClient:
    """Create an admin client that logs nothing: its broker may still be starting."""
    return clients.admin(Address(bootstrap_servers, kafka or {}))


def create(
    bootstrap_servers: str,
    topics: Topics,
    *,
    replay: bool = False,
    partitions: int = 2,
    replication: int | None = None,
    alter: bool = True,
    kafka: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> list[str]:
    """Create missing topics, and either alter or compare existing ones; their partition counts never change.

    Args:
        replay: see `Topics.configs`.
        partitions: number of partitions of new topics that have several.
        replication: replicas of each partition; None: on all brokers, but on 3 at most.
        alter: whether to alter the settings of existing topics, as the embedded stack does with its own. A
            bank's topics must not be altered: a changed setting may delete their records.
        only: names of the topics that are created and compared; None: all.

    Returns:
        Without `alter`, the differences of existing topics with their remedies, one line for each.

    Raises:
        StackError: the broker does not answer, refuses, or does not apply the settings in time.
    """
    client = admin(bootstrap_servers, kafka)
    counts = topics.partitions(partitions)
    try:
        cluster = client.list_topics(timeout=REQUEST_S)
        known, replication = cluster.topics, replication or min(MOST_REPLICAS, len(cluster.brokers))
        # the embedded stack's topics keep the broker's size limit (`retention.bytes`), for the disk's sake
        configs = topics.configs(replay=replay, replicas=replication, any_size=not alter)
        configs = {name: config for name, config in configs.items() if only is None or name in only}
        wanted = {name: _settings(topics, name, config) for name, config in configs.items()}
        new = [_new(name, counts[name], replication, wanted[name]) for name in wanted if name not in known]
        creations = client.create_topics(new, request_timeout=REQUEST_S) if new else {}
        # the broker learns of topics with a delay, so the controller may refuse some as existing
        created = {name for name, creation in creations.items() if _is_created(creation)}
        existing = [name for name in wanted if name not in created]
        if not alter:
            known = _wait_for_broker(
                client, {name: wanted[name] if name in created else {} for name in wanted}
            )
            return [
                line
                for name in existing
                for line in _differences(client, topics, known[name], wanted[name], counts[name], replication)
            ]
        differing = [name for name in existing if not _matches(client, name, wanted[name])]
        if differing:
            resources = [_resource(name, wanted[name]) for name in differing]
            for change in client.incremental_alter_configs(resources, request_timeout=REQUEST_S).values():
                change.result(timeout=REQUEST_S)
        _wait_for_broker(client, wanted)
        return []
    except KafkaException as error:
        raise StackError(
            f"topics cannot be created or compared ({clients.describe(error)}): check the brokers, their "
            "address and the permissions"
        ) from error


def _wait_for_broker(
    client: AdminClient, wanted: Mapping[str, Mapping[str, str | None]]
) -> dict[str, TopicMetadata]:
    """Wait until the broker applies the settings that its controller accepted: later records obey them all.

    Returns:
        The metadata of all topics, by name.
    """
    patience = Patience(REQUEST_S, POLL_S)
    pending = list(wanted)
    while True:
        known: dict[str, TopicMetadata] = client.list_topics(timeout=REQUEST_S).topics
        pending = [name for name in pending if name not in known or not _matches(client, name, wanted[name])]
        if not pending:
            return known
        text = f"the broker does not apply the settings of {', '.join(pending)}: look into its log"
        patience.wait(partial(StackError, text))


def _matches(client: AdminClient, name: str, config: Mapping[str, str | None]) -> bool:
    """Return whether the broker has these settings for a topic; None stands for a value that is not set."""
    entries = _described_settings(client, name)
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
    """List where an existing topic differs from what the job needs, with remedies; `topic`: its metadata."""
    actual = Actual.of(_described_settings(client, topic.topic) or {}, topic)
    return [str(line) for line in of_topic(topics, topic.topic, actual, config, (partitions, replication))]


def _described_settings(client: AdminClient, name: str) -> Mapping[str, Any] | None:
    try:
        return topic_reader.settings_of(client, name, REQUEST_S)
    except KafkaException as error:
        if topic_reader.is_missing(error):
            return None
        raise


def _is_created(creation: Any) -> bool:
    """Wait for a topic's creation; return False if the topic existed."""
    try:
        creation.result(timeout=REQUEST_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def _new(name: str, partitions: int, replication: int, config: Mapping[str, str | None]) -> NewTopic:
    settings = {key: value for key, value in config.items() if value is not None}
    return NewTopic(name, num_partitions=partitions, replication_factor=replication, config=settings)


def _settings(topics: Topics, name: str, config: Mapping[str, str]) -> dict[str, str | None]:
    """Return the wanted settings of a topic.

    A setting is None (the broker's default) if `Topics.configs` has it only for the other value of `replay`.
    """
    keys = {key for replay in (False, True) for key in topics.configs(replay=replay)[name]}
    return {key: config.get(key) for key in sorted(keys | config.keys())}


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
