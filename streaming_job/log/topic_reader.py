"""Reading a topic from some place to its end, with a consumer that joins no group."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

TIMEOUT_S = 15.0
POLL_S = 0.2
STEPS_BACK = (10, 1_000, 100_000)
"""How far before a partition's end its last record is looked for: transactions have marks there, too."""
RETRIED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""What the client tells while it connects again by itself."""


def consumer(bootstrap_servers: str, kafka: Mapping[str, str], name: str) -> Consumer:
    """A consumer that sees committed records only.

    Args:
        bootstrap_servers: Kafka brokers.
        kafka: more client settings (librdkafka names).
        name: for the brokers' logs.
    """
    return Consumer(
        {
            "log_level": 0,  # what goes wrong is raised
            # librdkafka reports the end of a partition only after a fetch that came back empty
            "fetch.wait.max.ms": 10,
            # a client that connects to brokers one by one, when it needs them, waits before each
            "enable.sparse.connections": False,
            **kafka,
            "bootstrap.servers": bootstrap_servers,
            "group.id": name,  # never joined: partitions are assigned
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
        }
    )


def partitions(
    client: Consumer | Producer | AdminClient, topic: str, timeout_s: float = TIMEOUT_S
) -> list[int]:
    """The topic's partitions.

    Args:
        client: who asks.
        topic: of which.
        timeout_s: for the answer.

    Raises:
        KafkaException: no such topic, or no answer.
    """
    found = client.list_topics(topic, timeout_s).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def is_missing(fault: KafkaException) -> bool:
    """Whether the brokers say that there is no such topic."""
    return bool(fault.args) and fault.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def exists(client: Consumer | AdminClient, topic: str) -> bool:
    """Whether there is such a topic.

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


def offsets(reader: Consumer, place: TopicPartition) -> tuple[int, int]:
    """First offset of a partition, and first offset after its last record.

    Raises:
        KafkaException: no answer.
    """
    found: tuple[int, int] = reader.get_watermark_offsets(place, TIMEOUT_S)
    return found


def to_end(reader: Consumer, place: TopicPartition) -> Iterator[Message]:
    """The records from a place to the end of its partition.

    Raises:
        KafkaException: no answer.
    """
    reader.assign([place])
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
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer about {place.topic}"))


def newest(
    reader: Consumer, topic: str, partition: int, is_wanted: Callable[[Message], bool] = lambda _: True
) -> Message | None:
    """The last record of a partition that is wanted; looks at the end first, and further back in steps.

    Raises:
        KafkaException: no answer.
    """
    first, end = offsets(reader, TopicPartition(topic, partition))
    for back in (*STEPS_BACK, end - first):
        start = TopicPartition(topic, partition, max(first, end - back))
        if found := deque(filter(is_wanted, to_end(reader, start)), maxlen=1):
            return found[0]
        if end - back <= first:
            break
    return None
