"""Comparison of existing topics with what the job needs, with the remedy for each difference. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming_job.contracts.topic import CREATE_TIME
from streaming_job.contracts.topics import Topics
from streaming_job.settings import Arrival

AT_LEAST = ("max.message.bytes", "retention.ms", "min.compaction.lag.ms", "min.insync.replicas")
"""Settings that may be greater than the job needs, unless `at_most` names them."""
TIMESTAMP_TYPE = "message.timestamp.type"
BREAKING = (TIMESTAMP_TYPE, "cleanup.policy", "min.compaction.lag.ms")
"""Settings that the job's guarantees rest on: who sets the arrivals, and which records stay."""
UNLIMITED = "-1"
ALTER = "kafka-configs.sh --alter --entity-type topics --entity-name"


@dataclass(frozen=True)
class Difference:
    """A difference between a topic and what the job needs."""

    text: str
    """The difference with its remedy, one line."""
    is_breaking: bool = False
    """Whether a guarantee of the job is lost; otherwise it is only unwise, or intended."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Actual:
    """A topic as it is on the brokers."""

    settings: Mapping[str, str | None]
    """Effective settings."""
    partitions: int
    replicas: int
    """Minimum number of replicas of any partition."""

    @staticmethod
    def of(entries: Mapping[str, Any], metadata: Any) -> "Actual":
        """Summarize what the brokers answer: the topic's `ConfigEntry` by name, and its `TopicMetadata`."""
        partitions = metadata.partitions.values()
        settings = {key: entry.value for key, entry in entries.items()}
        return Actual(settings, len(partitions), min(len(part.replicas) for part in partitions))


def at_start(topics: Topics, name: str, actual: Actual, arrival: Arrival) -> list[Difference]:
    """Compare a topic at a start of the job, which accepts any number of replicas.

    With `Arrival.CREATE` a topic whose records have the producers' timestamps is compared with what a
    replayed archive needs, any other topic with what live records need.
    """
    is_archive = actual.settings.get(TIMESTAMP_TYPE) == CREATE_TIME[TIMESTAMP_TYPE]
    is_replay = arrival is Arrival.CREATE and is_archive
    config = topics.configs(replay=is_replay, replicas=actual.replicas, any_size=True)[name]
    return of_topic(topics, name, actual, config, (actual.partitions, actual.replicas))


def of_topic(
    topics: Topics,
    name: str,
    actual: Actual,
    wanted: Mapping[str, str | None],
    sizes: tuple[int, int],
) -> list[Difference]:
    """Compare settings and sizes of a topic.

    Args:
        wanted: settings that the job needs; None where any value will do.
        sizes: numbers of partitions (of the transactions) and of replicas that the job needs.
    """
    # dead letters have whole records of cards: they should not be kept longer than needed
    at_most = ("retention.ms",) if name == topics.dead_letters else ()
    partitions, replicas = sizes
    single = {
        topics.merchant_facts: "create it anew: promises hold only for facts in the same partition",
        topics.model_rollouts: "create it anew: rollout events are ordered only within one partition",
        topics.record_schemas: "create it anew: of two schemas with one id the first in one partition holds",
    }
    remedy = f"give --partitions {actual.partitions}; another number needs a drain and a takeover"
    wanted_partitions = partitions if name == topics.transactions else None
    if name in single:
        wanted_partitions, remedy = 1, single[name]
    return [
        *of_settings(name, actual.settings, wanted, at_most),
        *of_sizes(
            name,
            (actual.partitions, actual.replicas),
            (wanted_partitions, replicas),
            remedy,
            is_breaking=name in single,
        ),
    ]


def of_settings(
    name: str, actual: Mapping[str, str | None], wanted: Mapping[str, str | None], at_most: Iterable[str] = ()
) -> list[Difference]:
    """List the settings that differ.

    Args:
        actual: effective settings of the topic.
        wanted: settings that the job needs; None where any value will do.
        at_most: settings that may be less, but not greater, than the job needs.
    """
    differences = []
    for key, value in wanted.items():
        bound = "at most " if key in at_most else "at least " if key in AT_LEAST else ""
        if value == UNLIMITED:
            bound = ""
        if value is not None and not _satisfies(actual.get(key), value, bound):
            text = (
                f"{name} has {key}={actual.get(key)}, the job wants {bound}{value}: "
                f"{ALTER} {name} --add-config {key}={value}"
            )
            differences.append(Difference(text, key in BREAKING))
    return differences


def of_sizes(
    name: str,
    actual: tuple[int, int],
    wanted: tuple[int | None, int],
    remedy: str = "",
    *,
    is_breaking: bool = False,
) -> list[Difference]:
    """List a number of partitions that differs and a number of replicas that is too low.

    Args:
        actual: number of partitions, and the minimum number of replicas of any partition.
        wanted: the numbers that the job needs; None if any number of partitions will do.
        remedy: what to do if the number of partitions differs.
        is_breaking: whether another number of partitions breaks a guarantee.
    """
    differences = []
    (partitions, replicas), (wanted_partitions, wanted_replicas) = actual, wanted
    if wanted_partitions is not None and partitions != wanted_partitions:
        text = f"{name} has {partitions} partitions, not {wanted_partitions}: {remedy}"
        differences.append(Difference(text, is_breaking))
    if replicas < wanted_replicas:
        differences.append(
            Difference(
                f"{name} has {replicas} replicas, not {wanted_replicas}: add some with "
                f"kafka-reassign-partitions.sh, or give --replication {replicas}"
            )
        )
    return differences


def _satisfies(actual: str | None, wanted: str, bound: str) -> bool:
    if actual is None or not bound:
        return actual == wanted
    value, limit = (float("inf") if text == UNLIMITED else int(text) for text in (actual, wanted))
    return value >= limit if bound == "at least " else value <= limit
