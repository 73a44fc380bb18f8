"""What a client knows of the brokers, from their metadata, and which of them it asks."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.protocol.metadata import MetadataResponse

from streaming_job.protocol import cluster as module
from streaming_job.protocol.cluster import Cluster
from streaming_job.protocol.connection import UnreachableError
from streaming_job.runtime import pauses

pytestmark = pytest.mark.unit

Topic = MetadataResponse.MetadataResponseTopic
Broker = MetadataResponse.MetadataResponseBroker


def metadata(alive: Sequence[int], partitions: Mapping[int, tuple[int, list[int]]]) -> MetadataResponse:
    """An answer about a topic: leader and replicas of each of its partitions."""
    known = [
        Topic.MetadataResponsePartition(
            error_code=0 if leader in alive else 5,
            partition_index=index,
            leader_id=leader,
            replica_nodes=nodes,
        )
        for index, (leader, nodes) in partitions.items()
    ]
    return MetadataResponse(
        brokers=[Broker(node_id=each, host=f"broker-{each}", port=9092) for each in alive],
        topics=[Topic(error_code=0, name="alerts", partitions=known)],
    )


def cluster(alive: Sequence[int], partitions: Mapping[int, tuple[int, list[int]]]) -> Cluster:
    """What is known after an answer about a topic."""
    made = Cluster("broker-1", {}, ["alerts"])
    answer = metadata(alive, partitions)
    made._ask_any = lambda *_: answer  # type: ignore[assignment,method-assign,return-value]
    made.refresh(time.monotonic() + 1)
    return made


@pytest.mark.parametrize(
    ("alive", "partitions", "brokers"),
    [
        ([1], {0: (1, [1]), 1: (1, [1])}, 1),
        ([1, 2], {0: (1, [1])}, 2),
        ([1], {0: (1, [1, 2, 3])}, 3),
        ([1], {0: (1, [1]), 1: (-1, [2])}, 2),
    ],
    ids=["single", "two alive", "replicas on two that are away", "a partition on one that is away"],
)
def test_brokers_that_are_away_count(
    alive: list[int], partitions: dict[int, tuple[int, list[int]]], brokers: int
) -> None:
    assert cluster(alive, partitions).brokers == brokers


def test_partitions_are_grouped_by_their_leader() -> None:
    known = cluster([1, 2], {0: (1, [1]), 1: (2, [2]), 2: (1, [1]), 3: (-1, [3])})
    assert known.by_leader([("alerts", index) for index in range(5)]) == {
        ("broker-1", 9092): [("alerts", 0), ("alerts", 2)],
        ("broker-2", 9092): [("alerts", 1)],
        None: [("alerts", 3), ("alerts", 4)],
    }
    with pytest.raises(UnreachableError, match="no leader"):
        known.leader(None, 0.0)


def test_a_stop_waits_for_one_silent_broker_not_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def silent(host: str, *_: Any) -> None:
        tried.append(host)
        raise UnreachableError(host)

    monkeypatch.setattr(module, "Connection", silent)
    made = Cluster("broker-1,broker-2,broker-3", {}, ["alerts"])
    with pauses.ended_by(lambda: bool(tried), grace_s=0.0), pytest.raises(pauses.StoppedError):
        made.refresh(time.monotonic() + 5)
    assert len(tried) == 1


class Brokers:
    """Three brokers, of which the third leads: some are gone with their machines, some give no answers."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.silent: set[str] = set()
        self.asked: list[str] = []
        """Those that were asked or waited for, in this order."""

    def connect(self, host: str, _port: int, _login: object, limit_s: float) -> "Brokers.Connected":
        if host in self.gone:
            self.asked.append(host)
            time.sleep(limit_s)
            raise UnreachableError(host)
        return self.Connected(self, host)

    class Connected:
        def __init__(self, brokers: "Brokers", host: str) -> None:
            self._brokers, self._host, self.usable = brokers, host, True

        def ask(self, *_: object) -> object:
            self._brokers.asked.append(self._host)
            if self._host in self._brokers.silent:
                self.usable = False
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer from {self._host}"))
            return metadata([2, 3], {0: (3, [1, 2, 3])})

        def close(self) -> None:
            pass


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(module, "Connection", made.connect)
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module.random, "sample", lambda known, _: sorted(known))
    return made


@pytest.mark.parametrize(
    ("fault", "limit_s", "message"), [("gone", 0.05, "broker-1"), ("silent", 1.0, "no answer from broker-1")]
)
def test_a_broker_that_fails_is_waited_for_once_while_others_answer(
    brokers: Brokers, fault: str, limit_s: float, message: str
) -> None:
    getattr(brokers, fault).add("broker-1")
    made = Cluster("broker-1,broker-2,broker-3", {}, ["alerts"])
    with pytest.raises(KafkaException, match=message):
        made.refresh(time.monotonic() + limit_s)
    for _ in range(3):
        made.refresh(time.monotonic() + limit_s)
    assert brokers.asked == ["broker-1", *["broker-2"] * 3]


def test_a_broker_that_is_back_is_asked_when_others_are_gone(brokers: Brokers) -> None:
    brokers.gone.add("broker-1")
    made = Cluster("broker-1,broker-2", {}, ["alerts"])
    with pytest.raises(KafkaException):
        made.refresh(time.monotonic() + 0.05)
    made.refresh(time.monotonic() + 1)
    brokers.gone.clear()
    brokers.silent |= {"broker-2", "broker-3"}
    for _ in range(2):
        with pytest.raises(KafkaException, match="no answer"):
            made.refresh(time.monotonic() + 1)
    made.refresh(time.monotonic() + 1)
    assert brokers.asked == ["broker-1", "broker-2", "broker-2", "broker-3", "broker-1"]
