"""Functions that look up whether a topic exists, its id, its partitions, and their first and end offsets.

They raise a KafkaException if there is no such topic, no permission or no answer; `settings_of` raises a
TimeoutError without an answer.
"""

import time
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its documented names
    ConfigResource,
    ResourceType,
    TopicDescription,
)

from streaming_job.log.clients import AdminClient, Consumer, Producer
from streaming_job.runtime import pauses

T = TypeVar("T")
TIMEOUT_S = 15.0
STEP_S, LONGEST_STEP_S = 2.0, 5.0
"""Time after which `answered` repeats an unanswered request: at first, and at most."""
_PAUSE_S = 0.1
NO_LEADER = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""Errors that pass: a topic was just created, a partition moves to another broker, or its new leader does not
know its end yet."""


def answered(ask: Callable[[float], T], passing: Container[int], limit_s: float) -> T:
    """Return the answer to a request that is repeated, so that a stop waits for one repetition at most.

    Args:
        ask: asks with a time limit in seconds.
        passing: codes of errors after which it is repeated, as after its time limit.
        limit_s: time for all repetitions.

    Raises:
        KafkaException: another error, or no answer.
        StoppedError: as `pauses.pause`.
    """
    deadline, step_s = time.monotonic() + limit_s, STEP_S
    while True:
        try:
            return ask(step_s)
        except KafkaException as fault:
            code = fault.args[0].code()
            is_late = code == KafkaError._TIMED_OUT
            if not (is_late or code in passing) or time.monotonic() > deadline:
                raise
            if is_late:  # the brokers may be slow
                step_s = min(2 * step_s, LONGEST_STEP_S)
        pauses.pause(_PAUSE_S)


def partitions(
    client: Consumer | Producer | AdminClient, topic: str, timeout_s: float = TIMEOUT_S
) -> list[int]:
    """Return the topic's partitions, ascending."""
    metadata = client.list_topics(topic, timeout_s).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return sorted(metadata.partitions)


def topic_ids(client: AdminClient, topics: Iterable[str]) -> dict[str, Callable[[], str]]:
    """Ask for Kafka's ids of topics in one request: a topic that is deleted and created again gets another.

    Returns:
        By topic, a function that returns the id. It raises a KafkaException if there is no such topic, or no
        answer.
    """
    answers = client.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_S)
    return {topic: partial(_id_in, answer, client) for topic, answer in answers.items()}


def _id_in(answer: Future[TopicDescription], _client: AdminClient) -> str:
    # the client is held until then: its requests end with it
    return str(answer.result().topic_id)


def is_missing(fault: KafkaException) -> bool:
    """Return whether an error means that the topic does not exist."""
    return bool(fault.args) and fault.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def settings_of(client: AdminClient, topic: str, timeout_s: float = TIMEOUT_S) -> Mapping[str, Any]:
    """Return the effective settings of a topic: a ConfigEntry by name."""
    (answer,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries: Mapping[str, Any] = answer.result(timeout=timeout_s)
    return entries


def exists(client: Consumer | AdminClient, topic: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether a topic exists."""
    try:
        partitions(client, topic, timeout_s)
    except KafkaException as fault:
        if is_missing(fault):
            return False
        raise
    return True


def require(
    client: Consumer,
    topics: Iterable[str],
    error: Callable[[str], Exception],
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Check that topics exist.

    Args:
        error: makes the error for a topic that does not, of a text that says so.

    Raises:
        Exception: that of `error`.
    """
    for topic in topics:
        if not exists(client, topic, timeout_s):
            raise error(f"topic {topic} does not exist; create it with `fraud job topics`")


def offsets(reader: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return the first offset and the end offset of a partition; waits until it has a leader that knows."""
    first_and_end: tuple[int, int] = answered(
        lambda step_s: reader.get_watermark_offsets(partition, step_s), NO_LEADER, TIMEOUT_S
    )
    return first_and_end


def bounds(reader: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end offset of each partition of a topic, by partition."""
    return {part: offsets(reader, TopicPartition(topic, part)) for part in partitions(reader, topic)}
