"""The opening of a key group on a real broker: a start that is refused leaves a running job alone."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import NoReturn

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from harness.job_world import LIMITS, PARTITIONER, World, load
from harness.writer_bench import OWN, At, Killed, WriterBench, die

from deploy.local import topics as broker
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, load_meta
from loadtests.faults.record_producer import RecordProducer
from streaming_job.facts.table import MerchantRules
from streaming_job.group.connections import KafkaConnections
from streaming_job.group.opening import INSTANCE, OpenGroup, Opening, begin, change_settings
from streaming_job.group.rules import Rules
from streaming_job.group.settings_in_force import are_stored, store_first
from streaming_job.group.stored_positions import positions_of, save_positions
from streaming_job.log import errors
from streaming_job.log.errors import LogError
from streaming_job.log.own_partitions import OwnPartitions
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Arrived, Offsets
from streaming_job.progress.last_record import COMMIT_ID, LAST
from streaming_job.runtime.checkpoint_errors import CheckpointError
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.transaction.writer import FencedError

pytestmark = pytest.mark.integration

RECORDS = 20
"""Number of records in each partition of the topic of transactions. Commit n of the bench has the end offset
10 * n, so two commits reach the end."""


@pytest.fixture
def opening(bench: WriterBench) -> Opening:
    """The opening of group 0 with merchant facts by a second instance."""
    producer = RecordProducer(bench.servers, PARTITIONER)
    for group in OWN:
        for partition in OWN[group]:
            for _ in range(RECORDS):
                producer.produce(bench.topics.transactions, b"card", b"{}", partition)
    rollouts = bench.topics.model_rollouts
    for number in range(bench.ends(0)[rollouts, 0]):
        producer.produce(rollouts, None, World().rollouts[0].value if number == 0 else b"{}", 0)
    producer.flush()
    merchants = MerchantRules(bench.settings.job_id, bench.settings.label_delay_ms)
    rules = Rules(bench.topics, KeyGroups(PARTITIONER, 4, len(OWN)), LIMITS, load, merchants=merchants)
    return Opening(bench.settings, rules, 0, "q", "second")


@pytest.fixture
def start(opening: Opening) -> Callable[[], OpenGroup]:
    """Function that opens the group with an empty state."""
    meta = Meta()
    store_first(meta, opening.settings.decisive)
    return lambda: OpenGroup(
        opening, KafkaConnections(opening), GroupState(MemoryArena()), meta, MemoryPieces(), 0
    )


def test_a_start_without_the_last_progress_record_is_refused_and_fences_nobody(
    bench: WriterBench, start: Callable[[], OpenGroup]
) -> None:
    running = bench.writer("first")
    bench.write(running, 1)
    bench.empty_progress()
    with pytest.raises(CheckpointError, match=r"written 1 Kafka transactions.* has number 0, "):
        start()
    bench.write(running, 2)
    opened = start()  # the last commit's progress record is enough
    opened.close()
    with pytest.raises(FencedError):
        bench.write(running, 3)


def test_a_start_waits_for_a_last_progress_record_that_another_group_hides(
    bench: WriterBench, start: Callable[[], OpenGroup], at: At
) -> None:
    """An open transaction of group 1, whose process was killed, hides what group 0 has committed since."""
    first, other = bench.writer("first", group=0), bench.writer("first", group=1)
    bench.write(first, 1)
    at(Failpoint.SENT, die)
    with pytest.raises(Killed):
        bench.write(other, 1, group=1)
    bench.write(first, 2)
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(start)
        with pytest.raises(TimeoutError):
            later.result(1.0)
        bench.writer("second", group=1)  # takes group 1 over, which aborts the open transaction
        later.result(20.0).close()


def test_other_settings_are_taken_over_only_where_all_output_is_in_the_state(
    bench: WriterBench, opening: Opening
) -> None:
    pieces = MemoryPieces()
    connections = KafkaConnections(opening)
    begin(opening, connections, load_meta(pieces), pieces)
    running = bench.writer("first")
    bench.write(running, 1)
    settings = bench.settings.model_copy(update={"allowed_skew_ms": 1})
    changed = replace(opening, settings=settings)
    assert not are_stored(load_meta(pieces), settings.decisive)
    with pytest.raises(CheckpointError, match=r"FRAUD_ALLOWED_SKEW_MS was 300000, is 1: .* SIGTERM"):
        change_settings(changed, connections, load_meta(pieces), pieces)
    assert not are_stored(load_meta(pieces), settings.decisive)
    # a clean stop leaves P at Q
    meta = load_meta(pieces)
    save_positions(meta, positions_of(meta) | bench.ends(1))
    change_settings(changed, connections, meta, pieces)
    assert are_stored(load_meta(pieces), settings.decisive)
    bench.write(running, 2)  # nobody was fenced
    connections.close()


def recreate(bench: WriterBench, left: int) -> None:
    """Replace the topic of transactions by one with another number of records in each partition.

    Brokers delete the committed offsets of a deleted topic, so that only progress shows Q.
    """
    admin, topic = broker.admin(bench.servers), bench.topics.transactions
    admin.delete_topics([topic], operation_timeout=30.0)[topic].result()
    config = {"message.timestamp.type": "LogAppendTime"}
    deadline = time.monotonic() + 30.0
    while True:  # brokers delete topics in the background
        try:
            admin.create_topics([NewTopic(topic, 4, 1, config=config)])[topic].result()
            break
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
    producer = RecordProducer(bench.servers, PARTITIONER)
    for partition in range(4):
        for _ in range(left):
            producer.produce(topic, b"card", b"{}", partition)
    producer.flush()


def state_of(bench: WriterBench, instance: str) -> Meta:
    """Metadata of a state that includes the first commit of an instance of the job."""
    first = bench.output(1)
    meta = Meta(extra={INSTANCE: instance, COMMIT_ID: 1, LAST: first.progress.decode()})
    store_first(meta, bench.settings.decisive)
    save_positions(meta, {tp: end for tp, end in first.ends.items() if tp[0] == bench.topics.transactions})
    return meta


@pytest.mark.parametrize("instance", ["first", "second"])
def test_a_group_is_not_opened_on_a_log_that_has_lost_its_tail(
    bench: WriterBench, opening: Opening, monkeypatch: pytest.MonkeyPatch, instance: str
) -> None:
    """P = 10, Q = 20; the log now ends at 15, and the next five records would be decided in silence.

    The first instance is the one that has served the group so far: Spark's next attempt after an error.
    """
    monkeypatch.setattr(errors, "CONFIRM_S", 1.0)
    running = bench.writer("first")
    bench.write(running, 1)
    bench.write(running, 2)
    recreate(bench, left=15)
    opening = replace(opening, instance=instance)
    with (
        closing(KafkaConnections(opening)) as connections,
        pytest.raises(LogError, match=r"was read up to offset 20, but ends at 15: .* has lost records"),
    ):
        OpenGroup(
            opening, connections, GroupState(MemoryArena()), state_of(bench, "first"), MemoryPieces(), 0
        )
    assert [record["commit_id"] for record in bench.progress()] == [1, 2]  # nothing was written


@pytest.mark.parametrize("instance", ["first", "second"])
def test_a_group_is_not_opened_on_a_log_that_was_filled_again_beyond_its_output(
    bench: WriterBench, opening: Opening, monkeypatch: pytest.MonkeyPatch, instance: str
) -> None:
    """P = 10, Q = 20, and the log ends at 30; but offset 19 is that of another record than before."""
    monkeypatch.setattr(errors, "CONFIRM_S", 1.0)
    opening = replace(opening, instance=instance)
    last = {(bench.topics.transactions, partition): RECORDS - 1 for partition in OWN[0]}
    with closing(KafkaConnections(opening)) as connections:
        arrivals = connections.arrivals(last)
    bench.newest = {tp: Arrived(offset, arrivals[tp]) for tp, offset in last.items()}
    running = bench.writer("first")
    bench.write(running, 1)
    bench.write(running, 2)

    def open_group() -> None:
        with closing(KafkaConnections(opening)) as connections:
            OpenGroup(
                opening, connections, GroupState(MemoryArena()), state_of(bench, "first"), MemoryPieces(), 0
            )

    open_group()  # the log is as it was
    recreate(bench, left=30)
    with pytest.raises(
        LogError, match=r"transactions\S*-0 holds a record that arrived at \d+ ms at offset 19"
    ):
        open_group()


def test_a_group_is_not_opened_on_a_recreated_topic_that_reaches_beyond_its_positions(
    bench: WriterBench, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P = 0, so neither first offsets nor ends tell; with a later P, the records before it would be lost."""
    monkeypatch.setattr(errors, "CONFIRM_S", 1.0)
    pieces = MemoryPieces()
    with closing(KafkaConnections(opening)) as connections:
        begin(opening, connections, load_meta(pieces), pieces)
    recreate(bench, left=3 * RECORDS)
    with (
        closing(KafkaConnections(opening)) as connections,
        pytest.raises(LogError, match=rf"{bench.topics.transactions} was deleted and created again"),
    ):
        OpenGroup(opening, connections, GroupState(MemoryArena()), load_meta(pieces), pieces, 0)
    assert bench.progress() == []  # nothing was written


class Recreating(KafkaConnections):
    """Connections to a log that loses its tail between the checks of the opening and the first fetch."""

    def __init__(self, opening: Opening, bench: WriterBench) -> None:
        super().__init__(opening)
        self._bench = bench

    def transactions(self, positions: Offsets) -> OwnPartitions:
        recreate(self._bench, left=15)
        return super().transactions(positions)


def advance_for_ever(opened: OpenGroup) -> NoReturn:
    while True:
        opened.follower.advance(MemoryPieces())


def test_a_silent_group_at_the_end_of_a_log_that_has_lost_its_tail_ends(
    bench: WriterBench, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "CONFIRM_S", 1.0)
    running = bench.writer("first")
    bench.write(running, 1)
    bench.write(running, 2)
    with closing(Recreating(opening, bench)) as connections:
        opened = OpenGroup(
            opening, connections, GroupState(MemoryArena()), state_of(bench, "first"), MemoryPieces(), 0
        )
        opened.committer.begin()
        with pytest.raises(LogError, match=r"was read up to offset 20, but ends at 15: .* has lost records"):
            advance_for_ever(opened)
    assert {part["end_offset"] for part in bench.progress()[-1]["partitions"]} >= {20}  # Q has not moved
