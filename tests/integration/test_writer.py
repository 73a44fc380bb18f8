"""The writer of a key group on a real broker, with failures at each of its steps."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from harness.writer_bench import OWN, At, Killed, WriterBench, die

from feature_store.release import RELEASE
from streaming_job.contracts.topics import WRITTEN
from streaming_job.log import clients
from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import OutputRecord
from streaming_job.runtime.failpoints import Failpoint
from streaming_job.transaction import producer
from streaming_job.transaction import writer as writer_module
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


def cut_off(opened: list[producer.TransactionalProducer]) -> Callable[[], object]:
    """Return an action that has the newest producer notice the end of its connection."""
    line = "127.0.0.1:9092/1: Disconnected (after 12ms in state UP) (_TRANSPORT)"
    return lambda: opened[-1]._connections.log(10, "", "FAIL", "", line)


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


def test_an_instance_fenced_while_it_sends_gets_the_error_of_a_fenced_one(
    bench: WriterBench, at: At, wait_for: Callable[..., object]
) -> None:
    first = bench.writer()
    bench.write(first, 1)
    successors: list[GroupWriter] = []

    def refuses() -> bool:
        """Whether the client knows that it is fenced: it then refuses records with "fatal error"."""
        assert first._producer is not None
        try:
            first._producer._client.produce(bench.topics.fraud_alerts, b"too late")
            first._producer._client.poll(0.05)
        except KafkaException:
            return True
        return False

    def take_over() -> None:
        successors.append(bench.writer())
        wait_for(refuses)

    at(Failpoint.BEGUN, take_over)
    with pytest.raises(FencedError):
        bench.write(first, 2)
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
        monkeypatch.setattr(writer._producer, "_left_s", lambda _: 5.0)

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


def test_a_broken_connection_is_followed_by_a_new_producer(
    bench: WriterBench, at: At, producers: list[producer.TransactionalProducer]
) -> None:
    writer = bench.writer()
    at(Failpoint.SENT, cut_off(producers))
    bench.write(writer, 1)
    bench.write(writer, 2)
    assert len(producers) == 2
    bench.write(writer, 3)
    assert len(producers) == 2
    bench.assert_written_once(1, 2, 3)


def test_a_fenced_instance_does_not_fence_its_successor_after_a_broken_connection(
    bench: WriterBench, at: At, producers: list[producer.TransactionalProducer]
) -> None:
    first = bench.writer()
    at(Failpoint.SENT, cut_off(producers))
    bench.write(first, 1)
    successor = bench.writer()
    with pytest.raises(FencedError):
        bench.write(first, 2)
    opened = len(producers)
    bench.write(successor, 2)
    assert len(producers) == opened
    bench.assert_written_once(1, 2)


def test_a_call_that_never_returns_times_out(
    bench: WriterBench,
    at: At,
    monkeypatch: pytest.MonkeyPatch,
    producers: list[producer.TransactionalProducer],
) -> None:
    monkeypatch.setattr(producer, "OFFSETS_TIMEOUT_S", 0.3)
    writer = bench.writer()
    hangs = [*producers]
    start = hangs[0]._caller.start

    def never(_call: object, limit_s: float) -> None:
        start(lambda: threading.Event().wait() and None, limit_s)

    at(Failpoint.BEGUN, lambda: monkeypatch.setattr(hangs.pop()._caller, "start", never))
    bench.write(writer, 1)
    assert len(producers) == 2
    bench.assert_written_once(1)


def test_output_that_a_broker_never_accepts_is_a_named_error(bench: WriterBench) -> None:
    whole = bench.output(1)
    large = OutputRecord(b"card", b"x" * (producer.MAX_MESSAGE_BYTES + 1), 0, 9)
    with pytest.raises(SinkError, match=r"failed in 5 attempts: .*too large.*; check the brokers"):
        bench.writer().write(
            Output(1, {**whole.records, "fraud_alerts": [large]}, whole.progress, whole.ends)
        )
    assert list(bench.log.read(bench.topics.fraud_alerts)) == []


def test_no_transaction_is_committed_without_records_that_its_partition_refused(bench: WriterBench) -> None:
    """Partitions of a topic that is being made have no leader at first: they refuse some records of some."""
    hasty = {"batch.num.messages": "1", "topic.metadata.refresh.fast.interval.ms": "3"}
    settings = bench.settings.model_copy(update={"kafka": {**bench.settings.kafka, **hasty}})
    client, values = clients.admin(bench.settings), [b"%d" % number for number in range(300)]
    refused = 0
    for attempt in range(30):
        topic = f"{bench.topics.transactions}-{attempt}"
        with closing(producer.TransactionalProducer(settings, topic)) as writer:
            writer.begin()
            made = client.create_topics([NewTopic(topic, 300, 1)])[topic]
            for number, value in enumerate(values):
                writer.produce(topic, b"%d" % (number % 40), value, [])
            made.result(30)
            try:
                writer.flush()
                writer.commit()
            except KafkaException as fault:
                if fault.args[0].code() != KafkaError._INCONSISTENT:
                    raise
                refused += 1
            else:
                assert sorted(values) == sorted(record.value or b"" for record in bench.log.read(topic))
        client.delete_topics([topic])[topic].result(30)
        if refused and attempt > 3:
            return
    pytest.skip("no partition refused only the first of its records")


def test_a_missing_broker_is_a_named_error(bench: WriterBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "CALL_TIMEOUT_S", 0.5)
    away = bench.settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9", "kafka": {"log_level": "0"}})
    with pytest.raises(SinkError, match=r"no transactional producer: .*; check the brokers"):
        producer.TransactionalProducer(away, "any")
