"""Key groups on a real broker, over an archive and topics that have lost their first half.

archive    -----------------------|
topics     ...... deleted ...|----------------
replays    ~~~ from files ~~~~~~~~|~ Kafka ~~~     the same bytes as one over the whole topics
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import TopicPartition
from harness.job_world import LIMITS, PARTITIONER, load
from harness.memory_log import as_written
from harness.random_world import random_world
from thoroughness import THOROUGH

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from deploy.replay import plan
from deploy.replay.record import Replay, file_of
from feature_store.archive.storage import Storage
from feature_store.catalogue import NAMES
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, load_meta
from loadtests.audit.topic_log import TopicLog
from loadtests.oracle import Record
from streaming_job.archive.archiver import Timing, archive
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.group.connections import KafkaConnections
from streaming_job.group.opening import OpenGroup, Opening, begin
from streaming_job.group.rules import Rules
from streaming_job.log import clients
from streaming_job.log.clients import Address
from streaming_job.log.partitioner import KeyGroups
from streaming_job.settings import Arrival, JobSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS, TRANSACTIONS, TURNS = 2, 300, 2_000


@dataclass
class Bench:
    """The topics of a live job, and its settings."""

    live: JobSettings
    log: TopicLog

    def send(self, records: list[Record]) -> None:
        """Produce records with their timestamps."""
        producer = clients.producer(Address(self.live.bootstrap_servers))
        for record in records:
            producer.produce(
                record.topic, record.value, record.key, record.partition, timestamp=record.timestamp
            )
        assert producer.flush(30) == 0

    def archive(self, place: Path) -> None:
        """Archive what the topics have."""
        settings = LetterSettings(bootstrap_servers=self.live.bootstrap_servers, topics=self.live.topics)
        storage = Storage(str(place))
        archive(
            settings, storage, Timing(3600, 3600), Event(), lambda _: None, until_now=True, accept_loss=False
        )

    def delete(self, ends: dict[int, int]) -> None:
        """Delete transactions before these offsets, as retention does."""
        admin = broker.admin(self.live.bootstrap_servers)
        partitions = [TopicPartition(self.live.topics.transactions, *end) for end in ends.items()]
        for answer in admin.delete_records(partitions).values():
            answer.result()

    def replay(self, name: str, groups: int, place: str = "") -> Replay:
        """The record of a replay."""
        live = self.live
        return Replay(
            name, live.job_id, live.checkpoint, live.key_groups, live.topics.model_rollouts, groups, {},
            archive=place, file=file_of(live.work_dir, name),
        )  # fmt: skip

    def refusals(self, place: str, *, partial: bool = False) -> str:
        """Why a replay on a large machine would not be started; empty if it would."""
        replay = self.replay("planned", 1, place)
        facts = replace(plan.gather(self.live, replay), free_disk=1 << 40, free_memory=1 << 40)
        return "; ".join(plan.made(self.live, replay, facts, partial=partial).refusals)

    def replayed(self, name: str, groups: int, most: int, place: str = "") -> list[tuple[str, bytes, bytes]]:
        """Decide the log by the second job of a replay; return what it has written."""
        live = self.live.model_copy(update={"max_records": most})
        settings = self.replay(name, groups, place).settings(live)
        broker.create(live.bootstrap_servers, settings.topics, replay=True, partitions=PARTITIONS)
        for group in range(groups):
            self._decide(settings, group)
        return sorted(
            (field, record.key or b"", record.value or b"")
            for field in ("fraud_alerts", "suppressed_alerts", "dead_letters")
            for record in self.log.read(getattr(settings.topics, field))
        )

    def _decide(self, settings: JobSettings, group: int) -> None:
        key_groups = KeyGroups(PARTITIONER, PARTITIONS, settings.key_groups)
        rules = Rules(settings.topics, key_groups, LIMITS, lambda ref: load(ref).on(NAMES))
        opening, pieces = Opening(settings, rules, group, "query", "instance"), MemoryPieces()
        with closing(KafkaConnections(opening)) as connections:
            begin(opening, connections, load_meta(pieces), pieces)
        state, meta = GroupState(MemoryArena()), load_meta(pieces)
        ends = self.log.ends(settings.topics.transactions)
        with closing(OpenGroup(opening, KafkaConnections(opening), state, meta, pieces, 0)) as opened:
            opened.committer.begin()
            for _ in range(TURNS):
                opened.follower.advance(pieces)
                positions = opened.follower.cut(pieces)
                if all(positions[tp] == ends[tp[1]] for tp in opening.own_partitions):
                    return
        raise AssertionError(f"not decided beyond {positions}")


@pytest.fixture
def bench(stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path) -> Bench:
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    settings = JobSettings(
        job_id=f"job-{topics.transactions}", bootstrap_servers=stack.bootstrap_servers, topics=topics,
        mlflow_tracking_uri="none", checkpoint="none", work_dir=tmp_path / "work", arrival=Arrival.CREATE,
        partitioner=PARTITIONER,
    )  # fmt: skip
    broker.create(stack.bootstrap_servers, topics, replay=True, partitions=PARTITIONS)
    return Bench(settings, TopicLog(stack.bootstrap_servers))


def test_the_bytes_are_those_of_the_whole_log_whatever_mini_batches_and_key_groups(
    bench: Bench, tmp_path: Path
) -> None:
    names, topics = Topics().model_dump(), bench.live.topics.model_dump()
    rename = {names[field]: topics[field] for field in names}
    records = [
        record._replace(topic=rename[record.topic])
        for record in as_written(random_world(7, TRANSACTIONS, PARTITIONS))
    ]
    cut, transactions, place = 2 * len(records) // 3, bench.live.topics.transactions, tmp_path / "archive"
    bench.send(records[:cut])
    bench.archive(place)
    archived = bench.log.ends(transactions)
    bench.send(records[cut:])
    whole = bench.replayed("whole", 1, 1_000)
    assert {field for field, *_ in whole} >= {"fraud_alerts", "dead_letters"}
    bench.delete({part: end * 3 // 4 for part, end in archived.items()})
    assert all(first > 0 for first in bench.log.beginnings(transactions).values())
    assert "give --archive" in bench.refusals("")
    assert bench.refusals(str(place)) == ""
    for groups, most in ((2, 7), (1, 1), (2, 50_000)) if THOROUGH else ((2, 7),):
        assert bench.replayed(f"by-{most}", groups, most, str(place)) == whole
    assert bench.replayed("cut", 1, 1_000) != whole
    bench.delete({0: archived[0] + 1})
    hole = f"offsets {archived[0]} to {archived[0] + 1} of {transactions}-0 are in neither archive nor topic"
    assert hole in bench.refusals(str(place), partial=True)
