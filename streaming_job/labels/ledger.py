"""The ledger of labels: writes them to their topic, all or none, and reads them back by card."""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from feature_store.errors import FraudError
from streaming_job.contracts import Contract, ContractError, validate
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode import strict
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Address, Producer, describe

TIMEOUT_S = 60.0
MAX_FAULTS = 5
IDENTIFIERS = ("transaction_id", "card_id", "source")
"""Fields of a label that must be free of control characters."""


class LedgerError(FraudError):
    """Labels break the contract, or the file lacks a column; none was written."""

    status = 422
    """HTTP status of the sidecar's answer."""
    check = "label"


class LedgerUnansweredError(LedgerError):
    """Labels cannot be written to the brokers, or read from them; a write may still have succeeded.

    Check the brokers; run `fraud job topics`; repeat the command.
    """

    status = 503
    check = "labels_topic"


def label(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of contract label.v1, without the fields that have no value.

    Raises:
        ContractError: the record does not keep the contract, or the job would refuse it for its characters.
    """
    record = {"schema_version": 1, **{name: value for name, value in fields.items() if value is not None}}
    validate(Contract.LABEL, record)
    try:
        for name in IDENTIFIERS:
            strict.identifier(record, name)
    except strict.Rejected as fault:
        raise ContractError(f"not a {Contract.LABEL.value}: {fault.detail}; correct the field") from fault
    return record


def labels(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return records of contract label.v1, one for each row.

    Raises:
        LedgerError: some rows do not keep the contract; the error names up to MAX_FAULTS of them.
    """
    records, faults = [], []
    for number, row in enumerate(rows):
        try:
            records.append(label(row))
        except ContractError as fault:
            faults.append(f"row {number}: {fault}")
    if faults:
        more = f" and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise LedgerError(f"nothing was written; {'; '.join(faults[:MAX_FAULTS])}{more}")
    return records


class Ledger:
    """A writer of labels; thread-safe, and any number of ledgers may write at the same time."""

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, str], topic: str) -> None:
        """Create a ledger, which connects at its first write.

        Args:
            kafka: more client settings (librdkafka names).
        """
        self._topic = topic
        self._brokers = Address(bootstrap_servers, kafka)
        self._fixed = {
            # the replay of dead letters uses the same one, so all labels of a card are in one partition
            "partitioner": "murmur2_random",
            # unique, so that ledgers do not fence each other; all producers of a ledger share it, so that the
            # next one ends a transaction that the previous one left open
            "transactional.id": f"fraud-labels-{topic}-{uuid.uuid4().hex}",
        }
        self._producer: Producer | None = None
        self._lock = threading.Lock()

    def add(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write labels in one Kafka transaction; return their number. Repeating a write is harmless.

        Args:
            rows: the fields of each label.

        Raises:
            LedgerError: some rows do not keep the contract; nothing was written.
            LedgerUnansweredError: the brokers do not answer, or refuse the labels, or the topic does not
                exist. If the commit got no answer, the labels may be written.
        """
        records = labels(rows)
        with self._lock:
            try:
                producer = self._open()
                producer.begin_transaction()
                for record in records:
                    key, value = record["card_id"].encode(), json.dumps(record).encode()
                    clients.produce(producer, self._topic, key, value)
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as fault:
                self._give_up()
                # a commit that got no answer may have succeeded
                raise LedgerUnansweredError(
                    f"the labels are not known to be written ({describe(fault)}); check the brokers, and "
                    f"the topic {self._topic} (`fraud job topics` creates it), then repeat the request: a "
                    "label that is written twice counts once"
                ) from fault
        return len(records)

    def _open(self) -> Producer:
        if self._producer is None:
            producer = clients.producer(self._brokers, fixed=self._fixed)
            # fails at once if the topic does not exist; a producer would wait for it
            topic_reader.partitions(producer, self._topic)
            producer.init_transactions(TIMEOUT_S)
            self._producer = producer
        return self._producer

    def _give_up(self) -> None:
        """Abort the open transaction, for which readers would wait."""
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.abort_transaction(topic_reader.TIMEOUT_S)
        self._producer = None


def of_card(settings: LetterSettings, card_id: str) -> Iterator[dict[str, Any]]:
    """Yield the labels of a card, then its chargebacks; each has arrival time, source and record.

    If the value of a record is no JSON, its size is given as `unreadable_bytes`, in place of `record`.

    Raises:
        LedgerUnansweredError: a topic cannot be read.
    """
    try:
        with closing(clients.reader(settings, "fraud-labels")) as reader:
            for topic in (settings.topics.labels, settings.topics.chargebacks):
                for partition in topic_reader.partitions(reader, topic):
                    for message in follow.to_end(reader, TopicPartition(topic, partition, 0)):
                        if message.key() == card_id.encode():
                            yield _shown(message)
    except KafkaException as fault:
        raise LedgerUnansweredError(
            f"the labels cannot be read ({describe(fault)}); check the brokers, and the topics of labels "
            "and chargebacks"
        ) from fault


def _shown(message: Any) -> dict[str, Any]:
    source = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    fields = {"arrival_time": message.timestamp()[1], "source": source}
    try:
        return {**fields, "record": json.loads(message.value() or b"")}
    except (ValueError, RecursionError):  # no JSON, or too deep
        return {**fields, "unreadable_bytes": len(message.value() or b"")}
