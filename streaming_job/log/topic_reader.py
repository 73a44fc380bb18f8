"""Functions that read a topic from an offset to its end, with a consumer that joins no group."""

import time
from collections import deque
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streaming_job.log.clients import AdminClient, Consumer, Producer

TIMEOUT_S = 15.0
POLL_S = 0.2
STEPS_BACK = (10, 1_000, 100_000)
"""Distances from a partition's end at which the search for its last record begins, tried in turn: the last
offsets may be those of transaction markers."""
RETRIED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""Errors that the client reports while it reconnects by itself."""


def partitions(
    client: Consumer | Producer | AdminClient, topic: str, timeout_s: float = TIMEOUT_S
) -> list[int]:
    """Return the topic's partitions, ascending.

    Args:
        client: client that asks the brokers.
        topic: name of the topic.
        timeout_s: limit for the answer.

    Raises:
        KafkaException: no such topic, or no answer.
    """
    metadata = client.list_topics(topic, timeout_s).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return sorted(metadata.partitions)


def is_missing(fault: KafkaException) -> bool:
    """Return whether an error means that the topic does not exist."""
    return bool(fault.args) and fault.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def exists(client: Consumer | AdminClient, topic: str) -> bool:
    """Return whether a topic exists.

    Raises:
        KafkaException: no answer.
    """
    try:
        partitions(client, topic)
    except KafkaException as fault:
        if is_missing(fault):
            return False
        raise
    return True


def offsets(reader: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return the first offset and the end offset of a partition.

    Raises:
        KafkaException: no answer.
    """
    first_and_end: tuple[int, int] = reader.get_watermark_offsets(partition, TIMEOUT_S)
    return first_and_end


def to_end(reader: Consumer, start: TopicPartition) -> Iterator[Message]:
    """Yield the records from an offset to the end of its partition.

    Raises:
        KafkaException: no answer, or the partition cannot be read.
    """
    reader.assign([start])
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = reader.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            deadline = time.monotonic() + TIMEOUT_S
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        elif error.code() not in RETRIED:
            raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer about {start.topic}"))


def newest(
    reader: Consumer, topic: str, partition: int, is_wanted: Callable[[Message], bool] = lambda _: True
) -> Message | None:
    """Return a partition's last record for which `is_wanted` is true; None if there is none.

    The search goes back from the end in growing steps.

    Raises:
        KafkaException: no answer, or the partition cannot be read.
    """
    first, end = offsets(reader, TopicPartition(topic, partition))
    for back in (*STEPS_BACK, end - first):
        start = TopicPartition(topic, partition, max(first, end - back))
        if last := deque(filter(is_wanted, to_end(reader, start)), maxlen=1):
            return last[0]
        if end - back <= first:
            break
    return None
