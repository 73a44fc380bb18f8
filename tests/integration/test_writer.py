"""The writer of a key group on a real broker, with failures at each of its steps."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from harness.writer_bench import OWN, At, Killed, WriterBench, die
from thoroughness import only_thorough

from feature_store.release import RELEASE
from streaming_job.contracts.topics import WRITTEN
from streaming_job.log import clients
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import OutputRecord
from streaming_job.protocol.connection import Connection
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.transaction import batches, producer
from streaming_job.transaction import writer as writer_module
from streaming_job.transaction.batches import Headers
from streaming_job.transaction.writer import FencedError, GroupWriter, Output, SinkError
from streaming_job.transaction.written import OtherQueryError

pytestmark = pytest.mark.integration

IN_TRANSACTION = (Failpoint.BEGUN, Failpoint.SENDING, Failpoint.SENT)


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[producer.TransactionalProducer]:
    """The producers that writers have opened: opening one fences the one before it."""
    opened: list[producer.TransactionalProducer] = []

    def recorded(*given: Any) -> producer.TransactionalProducer:
        opened.append(producer.TransactionalProducer(*given))
        return opened[-1]

    monkeypatch.setattr(writer_module, "TransactionalProducer", recorded)
    return opened


def cut_off(opened: list[producer.TransactionalProducer]) -> None:
    """End all connections of the newest producer, with what has arrived on them and was not read."""
    for connection in opened[-1]._cluster._connections.values():
        connection._socket.close()


def lose_answer() -> None:
    """Raise the client's error for an answer that never came."""
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def q(bench: WriterBench, offset: int, group: int = 0) -> Offsets:
    """`offset` for each of the group's partitions."""
    return {(bench.topics.transactions, partition): offset for partition in OWN[group]}


def test_transactions_are_written_once_and_the_next_process_continues_after_them(bench: WriterBench) -> None:
    writer = bench.writer("a")
    for commit_id in (1, 2):
        bench.write(writer, commit_id)
    successor = bench.new("b")
    asked = successor.written()
    assert (asked.commit_id, asked.offsets, asked.instance, asked.query_id) == (2, q(bench, 20), "a", "q")
    assert asked.progress is not None
    assert asked.progress["commit_id"] == 2
    bench.write(writer, 3)  # reading the positions fences no writer
    taken = successor.take_over(bench.ends(1))  # a state behind the output
    assert (taken.commit_id, taken.offsets, taken.instance) == (3, q(bench, 30), "b")
    bench.write(successor, 4)
    bench.assert_written_once(1, 2, 3, 4)


def test_headers_and_metadata_have_the_number_of_the_transaction(bench: WriterBench) -> None:
    bench.write(bench.writer("a"), 1)
    names = {"query_id": b"q", "key_group": b"0", "commit_id": b"1", "release": RELEASE.encode()}
    for topic in (bench.topics.fraud_alerts, bench.topics.dead_letters, bench.topics.job_progress):
        assert [dict(record.headers) for record in bench.log.read(topic)][-1] == names
    assert [record.key for record in bench.log.read(bench.topics.job_progress)] == [
        bench.settings.job_id.encode()
    ]
    for mark in bench.marks():
        assert mark is not None
        assert (mark.query_id, mark.owner.split("/")[0], mark.commit_id) == ("q", "a", 1)


def test_each_key_group_has_its_progress_in_one_partition(bench: WriterBench) -> None:
    for group in OWN:
        writer = bench.writer("a", group=group)
        for commit_id in (1, 2):
            bench.write(writer, commit_id, group=group)
    records = bench.log.read(bench.topics.job_progress)
    assert {(dict(record.headers)["key_group"], record.partition) for record in records} == {
        (b"0", 0),
        (b"1", 1),
    }


def test_the_first_start_claims_the_begin_of_the_log(bench: WriterBench) -> None:
    writer = bench.new("a")
    assert writer.written().offsets == {}
    taken = writer.take_over(q(bench, 7))
    assert (taken.offsets, taken.commit_id) == (q(bench, 7), 0)
    assert bench.committed() == dict.fromkeys(OWN[0], 7)
    assert bench.progress() == []


@pytest.mark.parametrize("step", IN_TRANSACTION)
def test_a_transaction_that_fails_before_its_commit_is_sent_again(
    bench: WriterBench, at: At, step: Failpoint
) -> None:
    writer = bench.writer()
    at(step, lose_answer)
    bench.write(writer, 1)
    bench.write(writer, 2)
    bench.assert_written_once(1, 2)


def test_a_commit_whose_answer_is_lost_is_not_sent_again(bench: WriterBench, at: At) -> None:
    writer = bench.writer()
    at(Failpoint.COMMITTED, lose_answer)
    bench.write(writer, 1)
    bench.write(writer, 2)
    bench.assert_written_once(1, 2)


@pytest.mark.parametrize("step", IN_TRANSACTION)
def test_second_instance_fences_the_first_inside_its_transaction(
    bench: WriterBench, at: At, step: Failpoint
) -> None:
    first = bench.writer()
    bench.write(first, 1)
    successors: list[GroupWriter] = []
    at(step, lambda: successors.append(bench.writer()))
    with pytest.raises(FencedError, match=r"another instance of job .* has taken over key group 0") as fenced:
        bench.write(first, 2)
    assert fenced.value.exit_code == 3
    bench.write(successors[0], 2)
    bench.assert_written_once(1, 2)


@pytest.mark.parametrize("successor_wrote", [False, True])
def test_a_fenced_instance_that_was_cut_off_exits_without_fencing_its_successor(
    bench: WriterBench, at: At, successor_wrote: bool, producers: list[producer.TransactionalProducer]
) -> None:
    first = bench.writer()
    bench.write(first, 1)
    successors: list[GroupWriter] = []

    def cut_off() -> None:
        successors.append(bench.writer())
        if successor_wrote:  # an equal transaction, but not the first instance's
            bench.write(successors[0], 2)
        lose_answer()

    at(Failpoint.BEGUN, cut_off)
    with pytest.raises(FencedError):
        bench.write(first, 2)
    opened = len(producers)
    for commit_id in (3, 4) if successor_wrote else (2, 3, 4):
        bench.write(successors[0], commit_id)
    assert len(producers) == opened  # it is not fenced
    bench.assert_written_once(1, 2, 3, 4)


def test_a_fenced_instance_waits_for_the_claim_of_its_successor(
    bench: WriterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.writer()
    bench.write(first, 1)
    successor = bench.new("b")
    claim = successor._claim
    event = threading.Event()

    def claim_late(starts: Offsets, commit_id: int) -> None:
        event.set()
        time.sleep(0.5)
        claim(starts, commit_id)

    monkeypatch.setattr(successor, "_claim", claim_late)
    taking = threading.Thread(target=successor.take_over, args=(bench.ends(0),))
    taking.start()
    assert event.wait(10)
    with pytest.raises(FencedError):
        bench.write(first, 2)
    taking.join()
    bench.write(successor, 2)
    bench.assert_written_once(1, 2)


def test_a_transaction_that_was_open_too_long_is_recognised_and_written_again(
    bench: WriterBench, at: At, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = bench.writer()
    bench.write(writer, 1)

    def time_passes() -> None:
        """Make the brokers abort the transaction with a newer producer epoch, as if it were open too long."""
        producer.TransactionalProducer(bench.settings, f"{bench.settings.job_id}-0").close()
        assert writer._producer is not None
        writer._producer._begun -= bench.settings.transaction_timeout_ms / 1000
        later = time.monotonic() + 5.0
        monkeypatch.setattr(writer._producer, "_deadline", lambda _: later)

    at(Failpoint.BEGUN, time_passes)
    with caplog.at_level(logging.WARNING):
        bench.write(writer, 2)
    assert "aborted a transaction that was open for more than 120 s" in caplog.text
    bench.write(writer, 3)
    bench.assert_written_once(1, 2, 3)


def test_a_successor_that_died_before_its_claim_does_not_stop_the_first_instance(
    bench: WriterBench, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CLAIM_S", 0.3)
    writer = bench.writer()
    at(
        Failpoint.SENT,
        lambda: producer.TransactionalProducer(bench.settings, f"{bench.settings.job_id}-0").close(),
    )
    bench.write(writer, 1)
    bench.assert_written_once(1)


@pytest.mark.parametrize("before", ["a", "b"])
def test_a_claim_that_is_not_visible_yet_is_not_mistaken_for_another_owners(
    bench: WriterBench, at: At, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Kafka answers a commit before all readers see it."""
    first = bench.writer(before)
    bench.write(first, 1)
    seen = first.written()
    writer = bench.writer("b")
    monkeypatch.setattr(writer._reader, "running", lambda: seen)
    at(Failpoint.BEGUN, lose_answer)
    bench.write(writer, 2)
    bench.assert_written_once(1, 2)


def test_an_older_attempt_of_the_same_instance_ends_without_a_fenced_error(
    bench: WriterBench, at: At
) -> None:
    older = bench.writer("a")
    bench.write(older, 1)
    newer: list[GroupWriter] = []
    at(Failpoint.BEGUN, lambda: newer.append(bench.writer("a")))
    with pytest.raises(SinkError, match="a newer attempt of this instance has key group 0") as ended:
        bench.write(older, 2)
    assert not isinstance(ended.value, FencedError)
    bench.write(newer[0], 2)
    bench.assert_written_once(1, 2)


def test_a_newer_attempt_of_a_fenced_instance_does_not_fence_its_successor(
    bench: WriterBench, producers: list[producer.TransactionalProducer]
) -> None:
    bench.write(bench.writer("a"), 1)
    successor = bench.writer("b")
    with pytest.raises(FencedError):
        bench.new("a").take_over(bench.ends(0), from_others=False)
    opened = len(producers)
    bench.write(successor, 2)
    assert len(producers) == opened


def test_transaction_of_a_dead_process_does_not_block_the_next(bench: WriterBench, at: At) -> None:
    at(Failpoint.SENT, die)
    with pytest.raises(Killed):
        bench.write(bench.writer(), 1)
    begun = time.monotonic()
    successor = bench.writer()
    assert time.monotonic() - begun < 5
    bench.write(successor, 1)
    bench.assert_written_once(1)


def test_an_open_transaction_of_another_group_hides_no_record_from_the_next_process(
    bench: WriterBench, at: At
) -> None:
    """The groups share the progress topic; a killed job leaves some of their transactions open.

    group 1   begin, record ......................................... taken over: aborted
    group 0            commit 1 (not readable yet), then taken over: must see commit 1
    """
    first = bench.writer("old", group=0)
    other = bench.writer("old", group=1)
    at(Failpoint.SENT, die)
    with pytest.raises(Killed):
        bench.write(other, 1, group=1)
    bench.write(first, 1)
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(lambda: bench.new("new", group=0).take_over(bench.ends(0)))
        with pytest.raises(TimeoutError):  # it waits until the other group's transaction has ended
            later.result(1.0)
        bench.writer("new", group=1)
        written = later.result(10.0)
    assert written.commit_id == 1
    assert written.progress is not None
    assert written.progress["commit_id"] == 1


def test_start_without_offsets_waits_for_the_progress_that_another_group_hides(
    bench: WriterBench, at: At
) -> None:
    """A start reads progress before it takes over; if it missed a commit, the state would seem ahead of Q.

    group 1             begin, record ....................... taken over: aborted
    group 0   commit 1                 commit 2 (hidden)
    """
    first, other = bench.writer("old", group=0), bench.writer("old", group=1)
    bench.write(first, 1)
    at(Failpoint.SENT, die)
    with pytest.raises(Killed):
        bench.write(other, 1, group=1)
    bench.write(first, 2)
    # known from the committed offsets, which are deleted next
    assert bench.new("new", group=0).written().commit_id == 2
    bench.delete_group()
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(bench.new("new", group=0).written)
        with pytest.raises(TimeoutError):
            later.result(1.0)
        bench.writer("new", group=1)
        written = later.result(10.0)
    assert (written.commit_id, written.offsets, written.unknown) == (2, q(bench, 20), frozenset())


def test_the_output_of_another_query_is_not_touched(
    bench: WriterBench, producers: list[producer.TransactionalProducer]
) -> None:
    running = bench.writer()
    bench.write(running, 1)
    with pytest.raises(
        OtherQueryError, match="last written by query q, but this checkpoint is of query other"
    ):
        bench.writer(query="other")
    bench.write(running, 2)
    assert len(producers) == 1
    bench.assert_written_once(1, 2)


@pytest.mark.parametrize("offset", [None, 5, 1000])
@pytest.mark.parametrize("lost", [False, True])
def test_offsets_moved_by_a_tool_while_the_job_runs_are_ignored(
    bench: WriterBench, at: At, caplog: pytest.LogCaptureFixture, offset: int | None, lost: bool
) -> None:
    """Deleted, set back or set forward; between transactions, or after a commit whose answer is lost."""

    def tool() -> None:
        if offset is None:
            bench.delete_group()
        else:
            bench.commit_as_a_tool(offset)

    writer = bench.writer()
    bench.write(writer, 1)
    if lost:

        def happens() -> None:
            tool()
            lose_answer()

        at(Failpoint.COMMITTED, happens)
        with caplog.at_level(logging.WARNING):
            bench.write(writer, 2)
        assert "were changed" in caplog.text
        bench.write(writer, 3)
        bench.assert_written_once(1, 2, 3)
    else:
        tool()
        bench.write(writer, 2)
        bench.assert_written_once(1, 2)


@pytest.mark.parametrize("offset", [None, 5, 1000])
def test_offsets_moved_by_a_tool_while_the_job_was_stopped_are_corrected(
    bench: WriterBench, caplog: pytest.LogCaptureFixture, offset: int | None
) -> None:
    writer = bench.writer()
    for commit_id in (1, 2):
        bench.write(writer, commit_id)
    if offset is None:
        bench.delete_group()
    else:
        bench.commit_as_a_tool(offset)
    successor = bench.new("b")
    with caplog.at_level(logging.WARNING):
        taken = successor.take_over(bench.ends(1))
    assert (taken.offsets, taken.commit_id, taken.query_id) == (q(bench, 20), 2, "q")
    former = "none" if offset is None else f"{offset}, which this job did not commit"
    assert f"{bench.topics.transactions}-0: {former}, last progress record: 20" in caplog.text
    assert bench.committed() == dict.fromkeys(OWN[0], 20)
    bench.write(successor, 3)
    bench.assert_written_once(1, 2, 3)


def test_an_emptied_progress_topic_loses_neither_positions_nor_numbers(bench: WriterBench) -> None:
    bench.write(bench.writer(), 1)
    bench.empty_progress()
    successor = bench.new("b")
    taken = successor.take_over(bench.ends(0))
    assert (taken.offsets, taken.commit_id, taken.progress) == (q(bench, 10), 1, None)
    bench.write(successor, 2)
    assert [record["commit_id"] for record in bench.progress()] == [2]
    assert bench.new("c").written().commit_id == 2


def test_a_moved_offset_without_progress_leaves_the_output_unknown(bench: WriterBench) -> None:
    first, second = OWN[0]
    writer = bench.writer()
    for commit_id in (1, 2):
        bench.write(writer, commit_id)
    bench.commit_as_a_tool(5, second)
    assert bench.new("b").written().unknown == frozenset()  # the progress record has the right offset
    bench.empty_progress()
    written = bench.new("b").written()
    topic = bench.topics.transactions
    assert (written.commit_id, written.offsets) == (2, {(topic, first): 20})
    assert written.unknown == {(topic, second)}


def test_key_groups_do_not_disturb_one_another(bench: WriterBench, at: At) -> None:
    first, second = bench.writer("a"), bench.writer("a", group=1)

    def write(writer: GroupWriter, group: int) -> None:
        for commit_id in range(1, 21):
            bench.write(writer, commit_id, group)

    at(Failpoint.SENT, lose_answer)  # in one transaction, of whichever group reaches the step first
    threads = [threading.Thread(target=write, args=job) for job in ((first, 0), (second, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in (0, 1):
        bench.assert_written_once(*range(1, 21), group=group)
    bench.writer("b", group=1)
    bench.write(first, 21)
    with pytest.raises(FencedError, match="key group 1"):
        bench.write(second, 21, 1)


def test_group_0_alone_commits_the_tables_offsets(bench: WriterBench) -> None:
    bench.write(bench.writer(group=1), 1, 1)
    table = bench.topics.model_rollouts
    assert bench.committed_of(table, (0,)) == {}
    bench.write(bench.writer(), 1)
    assert bench.committed_of(table, (0,)) == {0: 1000}


def test_heartbeat_moves_no_position(bench: WriterBench) -> None:
    writer = bench.writer()
    bench.write(writer, 1)
    idle = bench.output(2)
    writer.write(Output(2, dict.fromkeys(WRITTEN, ()), idle.progress, bench.ends(1)))
    assert bench.committed() == dict.fromkeys(OWN[0], 10)
    assert writer.written().commit_id == 2


@pytest.mark.parametrize("failpoint", [Failpoint.BEGUN, Failpoint.SENDING, Failpoint.SENT])
def test_only_a_connection_that_ends_before_an_answer_costs_the_producer(
    bench: WriterBench, at: At, producers: list[producer.TransactionalProducer], failpoint: Failpoint
) -> None:
    writer = bench.writer()
    at(failpoint, lambda: cut_off(producers))
    bench.write(writer, 1)
    assert len(producers) == (2 if failpoint is Failpoint.SENDING else 1)
    bench.write(writer, 2)
    bench.assert_written_once(1, 2)


def test_a_fenced_instance_does_not_fence_its_successor_after_a_broken_connection(
    bench: WriterBench, at: At, producers: list[producer.TransactionalProducer]
) -> None:
    first = bench.writer()
    successors: list[GroupWriter] = []

    def cut_off_and_replaced() -> None:
        cut_off(producers)
        successors.append(bench.writer())

    at(Failpoint.SENDING, cut_off_and_replaced)
    with pytest.raises(FencedError):
        bench.write(first, 1)
    opened = len(producers)
    bench.write(successors[0], 1)
    assert len(producers) == opened
    bench.assert_written_once(1)


def test_brokers_that_do_not_register_partitions_by_themselves_are_asked_to(
    bench: WriterBench,
    at: At,
    producers: list[producer.TransactionalProducer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with several brokers, or those before 4.0: the epoch stays, so sequence numbers go on."""
    monkeypatch.setattr(producer, "IMPLICIT", 99)
    writer = bench.writer()
    epoch = producers[-1]._who
    for commit_id in (1, 2, 3):
        bench.write(writer, commit_id)
    assert producers[-1]._who == epoch
    at(Failpoint.SENDING, lambda: cut_off(producers))
    bench.write(writer, 4)
    bench.write(writer, 5)
    bench.assert_written_once(1, 2, 3, 4, 5)


def test_records_are_in_the_partitions_that_librdkafka_gives_them(bench: WriterBench) -> None:
    """Earlier releases wrote them with librdkafka; those of a card must stay in one partition."""
    client = clients.producer(bench.settings)
    cards = [b"card %d" % number for number in range(40)]
    for card in cards:
        client.produce(bench.topics.fraud_alerts, b"earlier", card)
    client.flush(30)
    whole = bench.output(1)
    alerts = [OutputRecord(card, b"later", 0, number) for number, card in enumerate(cards)]
    bench.writer().write(Output(1, {**whole.records, "fraud_alerts": alerts}, whole.progress, whole.ends))
    partitions: dict[bytes | None, list[int]] = {}
    for record in bench.log.read(bench.topics.fraud_alerts):
        partitions.setdefault(record.key, []).append(record.partition)
    assert len(partitions) == 40
    assert all(len(of) == 2 and of[0] == of[1] for of in partitions.values())
    assert len({of[0] for of in partitions.values()}) > 1


def test_records_of_many_requests_arrive_in_order(
    bench: WriterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 2_000)
    monkeypatch.setattr(producer, "REQUEST_BYTES", 3_000)
    whole = bench.output(1)
    alerts = [
        OutputRecord(b"card %d" % (number % 7), b"%06d" % number * 20, 0, number) for number in range(600)
    ]
    bench.writer().write(Output(1, {**whole.records, "fraud_alerts": alerts}, whole.progress, whole.ends))
    read: dict[bytes | None, list[bytes | None]] = {}
    for record in bench.log.read(bench.topics.fraud_alerts):
        read.setdefault(record.key, []).append(record.value)
    assert sum(map(len, read.values())) == 600
    for key, values in read.items():
        assert values == [alert.encode() for alert in alerts if alert.record_key == key]


def test_whether_a_connection_is_usable_is_asked_once_not_for_each_partition(
    bench: WriterBench, producers: list[producer.TransactionalProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.writer()
    asked: list[Connection] = []
    usable = Connection.usable.fget
    assert usable is not None

    def counted(connection: Connection) -> bool:
        asked.append(connection)
        return bool(usable(connection))

    monkeypatch.setattr(Connection, "usable", property(counted))
    producers[-1].begin()
    for number in range(40):
        producers[-1].produce(bench.topics.fraud_alerts, b"card %d" % number, b"alert", Headers.of([]))
    producers[-1].send([])
    assert len(producers[-1]._batches) == 4
    assert len(asked) == len(set(asked))


@only_thorough
@pytest.mark.timeout(1_800)
def test_a_producer_outlives_its_epochs(
    bench: WriterBench, producers: list[producer.TransactionalProducer]
) -> None:
    """Where brokers register partitions each commit takes an epoch; after 32,767 another id comes."""
    writer = bench.writer()
    first, before = producers[-1]._who, bench.output(1)
    commit_id = 0
    while producers[-1]._who.producer_id == first.producer_id and commit_id < 40_000:
        commit_id += 1
        writer.write(replace(before, commit_id=commit_id, ends=bench.ends(commit_id)))
    assert len(producers) == 1
    assert producers[-1]._who.epoch == 0
    for _ in range(3):
        commit_id += 1
        writer.write(replace(before, commit_id=commit_id, ends=bench.ends(commit_id)))
    alerts = [record.value for record in bench.log.read(bench.topics.fraud_alerts)]
    assert len(alerts) == 2 * commit_id
    assert bench.committed() == dict.fromkeys(OWN[0], 10 * commit_id)
    successor = bench.writer()
    with pytest.raises(FencedError):
        bench.write(writer, commit_id + 1)
    bench.write(successor, commit_id + 1)


def test_output_that_a_broker_never_accepts_is_a_named_error(bench: WriterBench) -> None:
    whole = bench.output(1)
    large = OutputRecord(b"card", b"x" * (producer.MAX_MESSAGE_BYTES + 1), 0, 9)
    with pytest.raises(SinkError, match=r"failed in 5 attempts: .*is too large: .*; check the brokers"):
        bench.writer().write(
            Output(1, {**whole.records, "fraud_alerts": [large]}, whole.progress, whole.ends)
        )
    assert list(bench.log.read(bench.topics.fraud_alerts)) == []


@pytest.mark.parametrize("level", [producer.IMPLICIT, 99], ids=["today", "before-4.0"])
def test_no_transaction_is_committed_without_records_that_its_partition_refused(
    bench: WriterBench, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """Partitions of a topic that is being made have no leader at first: they refuse some records of some."""
    monkeypatch.setattr(producer, "IMPLICIT", level)
    client, values = clients.admin(bench.settings), [b"%d" % number for number in range(300)]
    for attempt in range(6):
        topic = f"{bench.topics.transactions}-{attempt}"
        topics = bench.topics.model_copy(update={"fraud_alerts": topic})
        settings = bench.settings.model_copy(update={"topics": topics})
        with closing(producer.TransactionalProducer(settings, topic)) as writer:
            writer.begin()
            made = client.create_topics([NewTopic(topic, 300, 1)])[topic]
            for number, value in enumerate(values):
                writer.produce(topic, b"%d" % (number % 40), value, Headers.of([]))
            writer.send([TopicPartition(topic, 0, 1, "")])
            writer.flush()
            writer.commit()
        made.result(30)
        assert sorted(values) == sorted(record.value or b"" for record in bench.log.read(topic))
        client.delete_topics([topic])[topic].result(30)


def test_a_missing_broker_is_a_named_error(bench: WriterBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "CALL_TIMEOUT_S", 0.5)
    away = bench.settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9", "kafka": {"log_level": "0"}})
    with pytest.raises(SinkError, match=r"no transactional producer: .*; check the brokers"):
        producer.TransactionalProducer(away, "any")
