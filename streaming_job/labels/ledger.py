"""Labels written to their topic, all or none, and read back by card."""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from feature_store.errors import FraudError
from streaming_job.contracts import Contract, ContractError, validate
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import topic_reader, topic_writer

TIMEOUT_S = 60.0
FAULTS_TOLD = 5


class LedgerError(FraudError):
    """Labels keep no contract; nothing was written."""

    status = 422
    """Of the sidecar's answer."""
    check = "label"


class LedgerUnansweredError(LedgerError):
    """The brokers do not take labels, or do not give them."""

    status = 503
    check = "labels_topic"


def label(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record of contract label.v1, fields without a value left out.

    Raises:
        ContractError: it keeps none.
    """
    record = {"schema_version": 1, **{name: value for name, value in fields.items() if value is not None}}
    validate(Contract.LABEL, record)
    return record


def labels(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of contract label.v1, one for each row.

    Raises:
        LedgerError: some rows keep none; it names the first of them.
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
    return records


class Ledger:
    """Writes labels; any number of ledgers may write at the same time, and of threads with one ledger."""

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, str], topic: str) -> None:
        """A ledger; it connects when it writes for the first time.

        Args:
            bootstrap_servers: Kafka brokers.
            kafka: more client settings (librdkafka names).
            topic: of the labels.
        """
        self._topic = topic
        self._config = {
            "log_level": 0,
            **kafka,
            "bootstrap.servers": bootstrap_servers,
            # its own: ledgers do not fence each other, and what one left open it ends when it opens again
            "transactional.id": f"fraud-labels-{topic}-{uuid.uuid4().hex}",
        }
        self._producer: Producer | None = None
        self._lock = threading.Lock()

    def add(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write labels in one Kafka transaction; returns how many. Written twice, they say the same.

        Args:
            rows: fields of each.

        Raises:
            LedgerError: some keep no contract, and nothing was written.
            LedgerUnansweredError: the brokers do not answer, or there is no such topic.
        """
        records = labels(rows)
        with self._lock:
            try:
                producer = self._open()
                producer.begin_transaction()
                for record in records:
                    key, value = record["card_id"].encode(), json.dumps(record).encode()
                    topic_writer.produce(producer, self._topic, key, value)
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as fault:
                self._give_up()
                raise LedgerUnansweredError(
                    f"the labels were not written ({fault.args[0].str()}); check the brokers, and the topic "
                    f"{self._topic} (`fraud job topics` makes it), then repeat it"
                ) from fault
        return len(records)

    def _open(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._config)
            # a producer would wait long for a topic that is not there
            topic_reader.partitions(producer, self._topic)
            producer.init_transactions(TIMEOUT_S)
            self._producer = producer
        return self._producer

    def _give_up(self) -> None:
        """Leave nothing open that readers would wait for."""
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.abort_transaction(topic_reader.TIMEOUT_S)
        self._producer = None


def of_card(settings: LetterSettings, card_id: str) -> Iterator[dict[str, Any]]:
    """What was said of a card's transactions, as it lies on the topics: arrival, place and record.

    Raises:
        LedgerUnansweredError: a topic cannot be read.
    """
    reader = topic_reader.consumer(settings.bootstrap_servers, settings.kafka, "fraud-labels")
    try:
        for topic in (settings.topics.labels, settings.topics.chargebacks):
            for partition in topic_reader.partitions(reader, topic):
                for message in topic_reader.to_end(reader, TopicPartition(topic, partition, 0)):
                    if message.key() == card_id.encode():
                        yield _shown(message)
    except KafkaException as fault:
        raise LedgerUnansweredError(
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
