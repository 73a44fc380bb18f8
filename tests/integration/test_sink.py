"""The transactional sink against a real broker, with all that can happen to it at each of its steps."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from harness.sink_bench import SinkBench

from streaming_job.transaction import producer
from streaming_job import sink as sink_module
from streaming_job.runtime.failpoints import Step
from streaming_job.transaction.ownership import MarkerError
from streaming_job.progress.outcome import Alert
from streaming_job.progress.record import Batch
from streaming_job.transaction.writer import FencedError, SinkError, TransactionalSink

pytestmark = pytest.mark.integration

IN_TRANSACTION = (Step.BEGUN, Step.SENT, Step.OFFSETS_ADDED)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Step, Callable[[], object]], None]]:
    """Makes something happen once, when the sink reaches a step."""

    def happen(step: Step, event: Callable[[], object]) -> None:
        waiting = [event]

        def reach(reached: Step) -> None:
            if reached is step and waiting:
                waiting.pop()()

        monkeypatch.setattr(sink_module, "reach", reach)

    return happen


def lose_answer() -> None:
    """What a client sees of an answer that never came."""
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_batch_is_written_once_however_often_it_is_run(bench: SinkBench) -> None:
    sink = bench.sink()
    assert bench.write(sink, 0)
    again = bench.sink()  # a restart, which Spark lets run the last batch again
    assert not bench.write(again, 0)
    assert bench.write(again, 1)
    bench.assert_written_once(0, 1)


@pytest.mark.parametrize("step", IN_TRANSACTION)
def test_failure_inside_the_transaction_is_sent_again(bench: SinkBench, at: Callable, step: Step) -> None:
    sink = bench.sink()
    at(step, lose_answer)
    assert bench.write(sink, 0)
    assert bench.write(sink, 1)
    bench.assert_written_once(0, 1)


def test_commit_whose_answer_was_lost_is_not_sent_again(bench: SinkBench, at: Callable) -> None:
    sink = bench.sink()
    at(Step.COMMITTED, lose_answer)
    assert not bench.write(sink, 0)
    assert bench.write(sink, 1)
    bench.assert_written_once(0, 1)


@pytest.mark.parametrize("step", IN_TRANSACTION)
def test_second_instance_fences_the_first_inside_its_transaction(
    bench: SinkBench, at: Callable, step: Step
) -> None:
    first = bench.sink()
    bench.write(first, 0)
    successors: list[TransactionalSink] = []
    at(step, lambda: successors.append(bench.sink()))
    with pytest.raises(FencedError, match=r"another instance of job .* has taken over") as fenced:
        bench.write(first, 1)
    assert fenced.value.exit_code == 3
    bench.assert_written_once(0)
    assert bench.write(successors[0], 1)
    bench.assert_written_once(0, 1)


def test_first_instance_that_learns_of_the_second_while_it_sends_does_not_fence_it_back(
    bench: SinkBench, at: Callable, wait_for: Callable
) -> None:
    first = bench.sink()
    bench.write(first, 0)
    successors: list[TransactionalSink] = []

    def refuses() -> bool:
        """Whether the client knows: what it says to a record then is "fatal error" and no more."""
        try:
            first._producer._producer.produce(bench.topics.fraud_alerts, b"too late")
            first._producer._producer.poll(0.05)
        except KafkaException:
            return True
        return False

    def take_over() -> None:
        successors.append(bench.sink())
        wait_for(refuses)

    at(Step.BEGUN, take_over)
    with pytest.raises(FencedError):
        bench.write(first, 1)
    assert bench.write(successors[0], 1)
    bench.assert_written_once(0, 1)


def test_first_instance_is_fenced_between_batches(bench: SinkBench) -> None:
    first = bench.sink()
    bench.write(first, 0)
    second = bench.sink()
    with pytest.raises(FencedError):
        bench.write(first, 1)
    assert bench.write(second, 1)
    bench.assert_written_once(0, 1)


def test_first_instance_notices_that_the_second_wrote_its_batch(bench: SinkBench) -> None:
    first = bench.sink()
    bench.write(first, 0)
    bench.write(bench.sink(), 1)
    with pytest.raises(FencedError):
        bench.write(first, 1)
    bench.assert_written_once(0, 1)


def test_transaction_of_a_dead_instance_does_not_block_the_next(bench: SinkBench, at: Callable) -> None:
    class Killed(BaseException):
        """Stands for SIGKILL."""

    def die() -> None:
        raise Killed

    at(Step.OFFSETS_ADDED, die)
    with pytest.raises(Killed):
        bench.write(bench.sink(), 0)
    begun = time.monotonic()
    bench.start(bench.batch(0))
    assert time.monotonic() - begun < bench.settings.transaction_timeout_ms / 2000
    assert bench.write(bench.sink(), 0)
    bench.assert_written_once(0)


def test_batch_that_a_broker_never_takes_is_an_error_that_says_so(bench: SinkBench) -> None:
    outcome = bench.outcome(0)
    outcome.alerts.append(Alert(0, 9, b"card", b"x" * (producer.MAX_MESSAGE_BYTES + 1)))
    with pytest.raises(SinkError, match=r"was not taken in 5 attempts: .*too large.*; check the brokers"):
        bench.sink().write(bench.batch(0), outcome)
    assert list(bench.log.read(bench.topics.fraud_alerts)) == []


def test_no_broker_is_an_error_that_says_so(bench: SinkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "CALL_TIMEOUT_S", 0.5)
    away = bench.settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9", "kafka": {"log_level": "0"}})
    with pytest.raises(SinkError, match=r"no transactional producer: .*; check the brokers"):
        TransactionalSink(away).take_over()


def refused(bench: SinkBench, batch: Batch, words: str) -> None:
    """The batch is refused, by a start and by a write, and nothing is written."""
    before = len(list(bench.log.read(bench.topics.job_progress)))
    with pytest.raises(MarkerError, match=words):
        bench.start(batch)
    with pytest.raises(MarkerError, match=words):
        bench.sink().write(batch, bench.outcome(batch.batch_id))
    assert len(list(bench.log.read(bench.topics.job_progress))) == before


def test_foreign_and_rolled_back_checkpoints_are_refused(bench: SinkBench) -> None:
    sink = bench.sink()
    for number in range(3):
        bench.write(sink, number)
    refused(
        bench, bench.batch(2, query="other"), "last written by query q, this checkpoint is of query other"
    )
    refused(
        bench, bench.batch(1), "the topics are at batch 2, the checkpoint at 1: one of them was rolled back"
    )
    refused(
        bench, bench.batch(4), "the topics are at batch 2, the checkpoint at 4: one of them was rolled back"
    )
    refused(bench, bench.batch(2, end=31), "batch 2 was written with other offsets than the checkpoint names")
    with pytest.raises(MarkerError, match=r"the checkpoint is empty, but job .* has written 3 batches"):
        bench.start(None)
    for good in (2, 3):
        bench.start(bench.batch(good))


def test_start_with_a_foreign_checkpoint_leaves_the_running_instance_alone(bench: SinkBench) -> None:
    running = bench.sink()
    bench.write(running, 0)
    for foreign in (None, bench.batch(0, query="other")):
        with pytest.raises(MarkerError):
            bench.start(foreign)
    assert bench.write(running, 1)
    bench.assert_written_once(0, 1)


def test_successor_is_not_confused_by_the_one_that_still_writes(bench: SinkBench) -> None:
    running = bench.sink()
    for number in range(3):
        bench.write(running, number)
    TransactionalSink(bench.settings).require_owner(bench.batch(1))  # its checkpoint was read a batch ago


def test_new_job_starts_with_an_empty_checkpoint_only(bench: SinkBench) -> None:
    bench.start(None)
    bench.start(bench.batch(0))  # killed in its first batch
    refused(bench, bench.batch(1), "the checkpoint is at batch 1, but group .* has no offsets")


def test_group_that_another_program_commits_to_is_refused(bench: SinkBench) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bench.settings.bootstrap_servers, "group.id": bench.settings.job_id}
    )
    consumer.commit(offsets=[TopicPartition(bench.topics.transactions, 0, 5)], asynchronous=False)
    consumer.close()
    refused(bench, bench.batch(0), "holds offsets that this job did not write")
