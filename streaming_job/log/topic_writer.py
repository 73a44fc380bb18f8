"""Writing records in a Kafka transaction of a tool; the job's own are in streaming_job/transaction."""

from confluent_kafka import Producer


def produce(
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    *,
    partition: int = -1,
    timestamp: int = 0,
    headers: list[tuple[str, str | bytes | None]] | None = None,
) -> None:
    """Hand a record to a producer, and wait while its local queue is full.

    Args:
        producer: with a transaction begun, whose commit tells what was not delivered.
        topic: where the record goes.
        key: of the record.
        value: of the record.
        partition: where it goes whatever its key says; default: where its key belongs.
        timestamp: of the record, ms; default: now.
        headers: of the record.

    Raises:
        KafkaException: the producer is not usable any more.
    """
    while True:
        try:
            producer.produce(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers or []
            )
            return
        except BufferError:  # the local queue is full: let some out
            producer.poll(0.1)
