"""Functions that look up whether a topic exists, its partitions, and their first and end offsets."""

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming_job.log.clients import AdminClient, Consumer, Producer

TIMEOUT_S = 15.0


def partitions(
    client: Consumer | Producer | AdminClient, topic: str, timeout_s: float = TIMEOUT_S
) -> list[int]:
    """Return the topic's partitions, ascending.

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


def bounds(reader: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end offset of each partition of a topic, by partition.

    Raises:
        KafkaException: no such topic, or no answer.
    """
    return {part: offsets(reader, TopicPartition(topic, part)) for part in partitions(reader, topic)}
