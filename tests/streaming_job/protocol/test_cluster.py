"""What the transactional producer knows of the brokers, from their metadata."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from streaming_job.protocol import cluster as module
from streaming_job.protocol.cluster import Cluster
from streaming_job.protocol.connection import UnreachableError
from streaming_job.runtime import pauses

pytestmark = pytest.mark.unit

Topic = MetadataResponse.MetadataResponseTopic
Broker = MetadataResponse.MetadataResponseBroker


def cluster(alive: Sequence[int], partitions: Mapping[int, tuple[int, list[int]]]) -> Cluster:
    """What is known after an answer about a topic: leader and replicas of each of its partitions."""
    known = [
        Topic.MetadataResponsePartition(
            error_code=0 if leader in alive else 5,
            partition_index=index,
            leader_id=leader,
            replica_nodes=nodes,
        )
        for index, (leader, nodes) in partitions.items()
    ]
    answer = MetadataResponse(
        brokers=[Broker(node_id=each, host=f"broker-{each}", port=9092) for each in alive],
        topics=[Topic(error_code=0, name="alerts", partitions=known)],
    )

    class Answering:
        def ask(self, request: object, deadline: float) -> object:
            return answer

    made = Cluster("broker-1", {}, ["alerts"])
    made._any = lambda deadline: Answering()  # type: ignore[assignment,method-assign,return-value]
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
