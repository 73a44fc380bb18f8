"""Labels written to their topic, all or none, and read back by card."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from feature_store.errors import FraudError
from streaming_job.contracts import Contract, ContractError, validate
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import topic_reader, topic_writer

TIMEOUT_S = 60.0
FAULTS_TOLD = 5


class LedgerError(FraudError):
    """Labels keep no contract, or the brokers do not take them."""


def label(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record of contract label.v1, fields without a value left out.

    Raises:
        ContractError: it keeps none.
    """
    record = {"schema_version": 1, **{name: value for name, value in fields.items() if value is not None}}
    validate(Contract.LABEL, record)
    return record


def add(settings: LetterSettings, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write labels in one Kafka transaction; returns how many.

    Args:
        settings: where the topic is.
        rows: fields of each.

    Raises:
        LedgerError: some keep no contract, and nothing was written; or the brokers do not answer.
    """
    records, faults = [], []
    for number, row in enumerate(rows):
        try:
            records.append(label(row))
        except ContractError as fault:
            faults.append(f"row {number}: {fault}")
    if faults:
        more = f" and {len(faults) - FAULTS_TOLD} more" if len(faults) > FAULTS_TOLD else ""
        raise LedgerError(f"nothing was written; {'; '.join(faults[:FAULTS_TOLD])}{more}")
    topic = settings.topics.labels
    try:
        producer = Producer(
            {
                "log_level": 0,
                **settings.kafka,
                "bootstrap.servers": settings.bootstrap_servers,
                "transactional.id": f"fraud-labels-{topic}",
            }
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for record in records:
            topic_writer.produce(producer, topic, record["card_id"].encode(), json.dumps(record).encode())
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as fault:
        raise LedgerError(
            f"the labels were not written ({fault.args[0].str()}); check the brokers, and the topic {topic}"
        ) from fault
    return len(records)


def of_card(settings: LetterSettings, card_id: str) -> Iterator[dict[str, Any]]:
    """What was said of a card's transactions, as it lies on the topics: arrival, place and record.

    Raises:
        LedgerError: a topic cannot be read.
    """
    reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, "fraud-labels")
    try:
        for topic in (settings.topics.labels, settings.topics.chargebacks):
            for partition in topic_reader.partitions(reader, topic):
                for message in topic_reader.to_end(reader, TopicPartition(topic, partition, 0)):
                    if message.key() == card_id.encode():
                        yield _shown(message)
    except KafkaException as fault:
        raise LedgerError(
            f"the labels cannot be read ({fault.args[0].str()}); check the brokers, and the topics"
        ) from fault
    finally:
        reader.close()


def _shown(message: Any) -> dict[str, Any]:
    place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    told = {"arrival_time": message.timestamp()[1], "source": place}
    try:
        return {**told, "record": json.loads(message.value() or b"")}
    except ValueError:
        return {**told, "unreadable_bytes": len(message.value() or b"")}
