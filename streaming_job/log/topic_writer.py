"""The writing of records in a tool's Kafka transaction; for the job's own see streaming_job/transaction."""

from streaming_job.log.clients import Producer


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
    """Produce a record, and wait while the producer's local queue is full.

    Args:
        producer: producer with an open transaction, whose commit reports delivery failures.
        partition: partition of the record; default: chosen by the key.
        timestamp: timestamp of the record, ms; default: now.

    Raises:
        KafkaException: the record is too large, or the producer is not usable any more.
    """
    while True:
        try:
            producer.produce(
                topic, value, key, partition=partition, timestamp=timestamp, headers=headers or []
            )
            return
        except BufferError:  # the local queue is full: wait until some records are sent
            producer.poll(0.1)
