"""The constructor of every Kafka client of this project, with the settings that they have in common.

Three clients do without confluent-kafka's: the transactional producer of a key group's output
(`transaction.producer`), its look at the ends of the tables (`log.watermarks`), and the job's consumer of its
inputs (`log.ffi`). A lint rule refuses the library's
constructors in any other module. This one also exports the types for annotations.

Of the settings that callers give, the operator's override `tuning`, and `fixed` overrides all others.
Settings that librdkafka refuses raise a KafkaException.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

__all__ = ["AdminClient", "Consumer", "Producer"]  # the library's types, for annotations

Settings = Mapping[str, str | int | float | bool]
"""Client settings by librdkafka's names."""

COMMON: Settings = {
    "log_level": 0,  # errors are raised or reported, and not written to standard error by the C library
    # a client that connects to brokers one by one, when it needs them, waits before each
    "enable.sparse.connections": False,
}
READING: Settings = {
    # librdkafka reports the end of a partition only after an empty fetch, which takes this time
    "fetch.wait.max.ms": 10,
}
READER: Settings = {
    "enable.auto.commit": False,  # the group is never joined; its offsets are the job's
    "enable.partition.eof": True,  # the end of a partition is reported, so no reader waits in vain
    "auto.offset.reset": "earliest",  # records that retention has deleted are skipped
    "allow.auto.create.topics": False,  # a misspelled topic is an error
}
MEASURING: Settings = {
    # short waits: the time of receipt is measured
    "fetch.wait.max.ms": 5,
    "fetch.error.backoff.ms": 5,
    "auto.offset.reset": "error",  # each record counts
}
"""Fixed settings of a reader that measures latency."""
PRODUCER: Settings = {
    "enable.idempotence": True,  # with acks=all: a repeated request neither duplicates nor reorders records
    # librdkafka takes a record as delivered once brokers accept a later one, but the first records that a
    # producer sends to a partition may have been refused, because the partition had no leader yet; they would
    # be lost without an error (decision 219)
    "max.in.flight": 1,
}
PIPELINED: Settings = {
    "max.in.flight": 5,
}
"""Fixed setting of a producer that sends only to partitions that have leaders, as those of a load test."""
BULK: Settings = {
    # the partitioner of Java's clients: a Java producer puts a card into the same partition
    "partitioner": "murmur2_random",
    "linger.ms": 1,
    "batch.size": 512 * 1024,
    "batch.num.messages": 20_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    # a report of success per record would cost more than the record
    "delivery.report.only.error": True,
}
"""Tuning of a producer that sends thousands of records a second."""


class Brokers(Protocol):
    """Where and how to connect; the settings of job, sidecar and tools have these fields."""

    @property
    def bootstrap_servers(self) -> str:
        """Kafka brokers, host:port[,host:port]."""

    @property
    def kafka(self) -> Mapping[str, str]:
        """The operator's settings of every client, for example of security."""


@dataclass(frozen=True)
class Address:
    """Brokers that no settings name."""

    bootstrap_servers: str
    kafka: Mapping[str, str] = field(default_factory=dict)


def reader(
    brokers: Brokers,
    name: str,
    *,
    committed_only: bool = True,
    tuning: Settings | None = None,
    fixed: Settings | None = None,
) -> Consumer:
    """Return a consumer that joins no group.

    Args:
        name: group id: for the brokers' logs, or to query a group's committed offsets.
        committed_only: False: it also sees records of open and of aborted transactions.
    """
    isolation = "read_committed" if committed_only else "read_uncommitted"
    return Consumer(
        {
            **COMMON,
            **READING,
            **(tuning or {}),
            **_connection(brokers),
            "group.id": name,
            "isolation.level": isolation,
            **READER,
            **(fixed or {}),
        }
    )


def producer(
    brokers: Brokers,
    *,
    tuning: Settings | None = None,
    fixed: Settings | None = None,
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> Producer:
    """Return an idempotent producer; with a `transactional.id` its transactions must be initialised.

    Args:
        on_delivery: called with the outcome of each record.
    """
    config: dict[str, Any] = {
        **COMMON,
        **(tuning or {}),
        **_connection(brokers),
        **PRODUCER,
        **(fixed or {}),
    }
    return Producer(config if on_delivery is None else {**config, "on_delivery": on_delivery})


def admin(brokers: Brokers, on_error: Callable[[KafkaError], None] = lambda _: None) -> AdminClient:
    """Return an admin client.

    Args:
        on_error: called by `poll` with each error of the background connections.
    """
    config: dict[str, Any] = {**COMMON, **_connection(brokers), "error_cb": on_error}
    return AdminClient(config)


def describe(fault: KafkaException | TimeoutError) -> str:
    """Return the text of a Kafka error or of a timeout, for the message of a FraudError."""
    cause = fault.args[0] if fault.args else "no answer in time"
    return str(cause.str() if hasattr(cause, "str") else cause)


def _connection(brokers: Brokers) -> dict[str, str]:
    return {**brokers.kafka, "bootstrap.servers": brokers.bootstrap_servers}


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
