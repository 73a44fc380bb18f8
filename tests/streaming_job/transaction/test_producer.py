"""What the transactional producer does about the answers of brokers, which are scripted here."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from harness import settings_of_nowhere
from kafka.protocol.producer import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    ProduceResponse,
    TxnOffsetCommitResponse,
)

from streaming_job.protocol.connection import UnreachableError
from streaming_job.transaction import producer
from streaming_job.transaction.batches import Batch, Headers
from streaming_job.transaction.producer import TransactionalProducer
from streaming_job.transaction.requests import Identity

pytestmark = pytest.mark.unit

ALERTS, TRANSACTIONS = "fraud-alerts", "transactions"
KEYS = {0: b"card-1", 1: b"card-4"}
"""A key of each partition."""


class Broker:
    """A connection to a broker that accepts each batch, unless its script has another code."""

    def __init__(self, **script: list[int]) -> None:
        """Take the codes to answer next, by partition: p0, p1; of offsets: offsets."""
        self.script, self.features = script, {producer.VERSION: producer.IMPLICIT}
        self.requests = 0
        self.names: list[str] = []
        """Names of the requests; a test may have several brokers share it."""

    def ask(self, *_: object, **__: object) -> object:
        return SimpleNamespace(error_code=0, producer_id=1, producer_epoch=32_766)

    def send(self, request: Any, deadline: float) -> None:
        self.requests += 1
        self._name = request.name
        self.names.append(request.name)

    def receive(self, deadline: float) -> bytes:
        if self._name == "EndTxn":
            end = EndTxnResponse(error_code=0, producer_id=2, producer_epoch=0)
            return b"\0\0\0\1\0" + bytes(end.encode(version=5))
        if self._name == "AddPartitionsToTxn":  # as if it had not seen partition 1
            added = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
            parts = [added.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0)]
            topics = [added(name=ALERTS, results_by_partition=parts)]
            return b"\0\0\0\1\0" + bytes(
                AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics).encode(version=3)
            )
        if self._name == "TxnOffsetCommit":
            committed = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
            code = self.script["offsets"].pop(0) if self.script.get("offsets") else 0
            parts = [committed.TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)]
            topics = [committed(name=TRANSACTIONS, partitions=parts)]
            return b"\0\0\0\1\0" + bytes(TxnOffsetCommitResponse(topics=topics).encode(version=5))
        topic = ProduceResponse.TopicProduceResponse
        codes = {index: self.script.get(f"p{index}") for index in KEYS}
        parts = [
            topic.PartitionProduceResponse(
                index=index, error_code=answers.pop(0) if answers else 0, base_offset=0
            )
            for index, answers in codes.items()
        ]
        answer = ProduceResponse(responses=[topic(name=ALERTS, partition_responses=parts)])
        return b"\0\0\0\1\0" + bytes(answer.encode(version=12))


class Cluster:
    """A cluster that has the leaders that a test names, and others after the next look-up."""

    brokers = 1

    def __init__(self, *leaders: dict[int, str], **brokers: Broker) -> None:
        """Take the leader of each partition, before and after look-ups."""
        self.leaders, self.connections = [*leaders], {"coordinator": Broker(), **brokers}
        self.looked_up: list[int] = []
        """Number of requests to broker b before each look-up."""

    def partitions(self, *_: object) -> int:
        return len(KEYS)

    def coordinator(self, *_: object) -> Broker:
        return self.connections["coordinator"]

    def by_leader(self, partitions: Any) -> dict[str, list[tuple[str, int]]]:
        led: dict[str, list[tuple[str, int]]] = {}
        for topic, index in partitions:
            led.setdefault(self.leaders[0][index], []).append((topic, index))
        return led

    def leader(self, address: str, deadline: float) -> Broker:
        if address not in self.connections:
            raise UnreachableError(address)
        return self.connections[address]

    def refresh(self, deadline: float) -> None:
        self.looked_up.append(self.connections["b"].requests)
        if len(self.leaders) > 1:
            self.leaders.pop(0)


def written(cluster: Cluster, patch: pytest.MonkeyPatch, transactions: int = 1) -> None:
    """Write a record to each partition in each of some transactions."""
    patch.setattr(producer, "Cluster", lambda *_: cluster)
    made = TransactionalProducer(settings_of_nowhere.settings(), "job-0")
    for _ in range(transactions):
        made.begin()
        for key in KEYS.values():
            made.produce(ALERTS, key, b"alert", Headers.of([]))
        made.send([TopicPartition(TRANSACTIONS, 0, 7, "mark")])
        made.flush()
        made.commit()


def test_a_moved_leader_is_looked_up_while_another_partition_waits_for_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Broker(p0=[KafkaError.NOT_LEADER_FOR_PARTITION] * 9)
    waiting = Broker(p1=[KafkaError.NOT_ENOUGH_REPLICAS] * 3)
    cluster = Cluster({0: "a", 1: "b"}, {0: "c", 1: "b"}, a=before, b=waiting, c=Broker())
    written(cluster, monkeypatch)
    assert (before.requests, waiting.requests, cluster.connections["c"].requests) == (1, 4, 1)
    assert cluster.looked_up == [1]


def test_an_unreachable_leader_is_looked_up_while_another_partition_waits_for_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Broker(p1=[KafkaError.NOT_ENOUGH_REPLICAS] * 3)
    cluster = Cluster({0: "dead", 1: "b"}, {0: "c", 1: "b"}, b=waiting, c=Broker())
    written(cluster, monkeypatch)
    assert (waiting.requests, cluster.connections["c"].requests) == (4, 1)
    assert cluster.looked_up == [1]


def test_a_record_that_can_never_be_written_ends_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Broker(p0=[KafkaError.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(KafkaException, match="fraud-alerts-0"):
        written(Cluster({0: "a", 1: "a"}, a=refusing), monkeypatch)


def test_a_partition_that_is_not_registered_gets_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Broker()
    cluster = Cluster({0: "a", 1: "a"}, a=leader)
    monkeypatch.setattr(cluster, "brokers", 3, raising=False)
    with pytest.raises(KafkaException, match="AddPartitionsToTxn"):
        written(cluster, monkeypatch)
    assert leader.requests == 0


def test_after_the_last_epoch_of_an_id_the_next_transaction_has_another_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[Identity, int]] = []
    monkeypatch.setattr(
        Batch, "encode", lambda batch, _now, who, _compress: sent.append((who, batch.sequence)) or b"batch"
    )
    written(Cluster({0: "a", 1: "a"}, a=Broker()), monkeypatch, transactions=2)
    last, other = Identity("job-0", 1, 32_766), Identity("job-0", 2, 0)
    assert sent == [(last, 0), (last, 0), (other, 0), (other, 0)]


@pytest.mark.parametrize("is_soon", [True, False])
def test_soon_after_a_commit_the_records_wait_for_the_offsets(
    monkeypatch: pytest.MonkeyPatch, *, is_soon: bool
) -> None:
    monkeypatch.setattr(producer, "ENDING_S", 60.0 if is_soon else 0.0)
    busy = [0, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]
    coordinator, leader = Broker(offsets=busy), Broker()
    leader.names = coordinator.names
    written(Cluster({0: "a", 1: "a"}, a=leader, coordinator=coordinator), monkeypatch, transactions=2)
    first, second = ["Produce", "TxnOffsetCommit", "EndTxn"], ["TxnOffsetCommit"] * 3
    second = [*second, "Produce"] if is_soon else ["Produce", *second]
    assert coordinator.names == [*first, *second, "EndTxn"]
