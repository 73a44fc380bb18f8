"""Dead letters whose keys and values stayed in the log: the sink reads them again."""

from dataclasses import replace

import numpy as np
import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.sink_bench import SinkBench

from loadtests.topic_log import Record
from streaming_job.contracts import Reason
from streaming_job.dead_letters.letter import Letter
from streaming_job.progress.outcome import Outcome
from streaming_job.packets import DeadLetter
from streaming_job.log.errors import LogError

pytestmark = pytest.mark.integration

ROUNDS, EACH = 8, 40


@pytest.fixture
def letters(bench: SinkBench) -> list[DeadLetter]:
    """What a source stage makes of broken records in two partitions, with marks and aborted ones between."""
    servers, topic = bench.settings.bootstrap_servers, bench.topics.transactions
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions()
    rng = np.random.default_rng(5)
    delivered: list[DeadLetter] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None
        place = (topic, int(message.partition() or 0), int(message.offset() or 0))
        content = (message.key(), message.value())
        delivered.append(DeadLetter(*place, 7, *content, Reason.INVALID_UTF8, "why"))

    for number in range(ROUNDS):
        producer.begin_transaction()
        committed = number % 3 != 1
        for row in range(EACH):
            value = None if row == 5 else rng.bytes(2_000)
            producer.produce(
                topic, value, None if row == 6 else b"key", partition=row % 2,
                on_delivery=note if committed else None,
            )  # fmt: skip
        producer.flush()  # an abort would drop what has not left yet, and there would be no transaction
        producer.commit_transaction() if committed else producer.abort_transaction()
    return sorted(delivered, key=lambda letter: (letter.partition, letter.offset))


def left_behind(letter: DeadLetter) -> DeadLetter:
    return replace(letter, key=None, value=None, is_whole=False)


def content(record: Record) -> tuple[int, int, bytes | None, bytes | None]:
    letter = Letter.from_record(record.topic, record.partition, record.offset, record.value)
    return letter.partition, letter.offset, letter.key, letter.value


def test_each_letter_is_written_with_its_own_record(bench: SinkBench, letters: list[DeadLetter]) -> None:
    sent = Outcome()
    # whole ones come first in a task, then none; several tasks read a partition, and rarely all of it
    sent.dead_letters = [
        letter if row % 50 < 7 else left_behind(letter) for row, letter in enumerate(letters) if row % 5
    ]
    assert bench.sink().write(bench.batch(0), sent)
    found = sorted(content(record) for record in bench.log.read(bench.topics.dead_letters))
    wanted = [(letter.partition, letter.offset, letter.key, letter.value) for letter in letters]
    assert found == sorted(what for row, what in enumerate(wanted) if row % 5)
    assert len(found) == len(sent.dead_letters) > 100


def test_a_record_that_is_gone_ends_the_job_and_nothing_of_the_batch_is_seen(
    bench: SinkBench, letters: list[DeadLetter]
) -> None:
    sink = bench.sink()
    bench.write(sink, 0)
    place = TopicPartition(bench.topics.transactions, 0, letters[3].offset + 1)
    admin = AdminClient({"bootstrap.servers": bench.settings.bootstrap_servers})
    admin.delete_records([place])[place].result(timeout=30)
    sent = bench.outcome(1)
    sent.dead_letters = [left_behind(letters[2])]
    with pytest.raises(LogError, match=r"-0@\d+ became a dead letter and was gone before"):
        sink.write(bench.batch(1), sent)
    del sink
    assert bench.write(bench.sink(), 1)
    bench.assert_written_once(0, 1)
