"""Records too large for their dead letters are fetched from the log, and named if they are deleted."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import Result
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from harness.rollout_records import installed
from typer.testing import CliRunner

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from loadtests.audit.topic_log import Record, TopicLog
from models.policy import Policy
from models.registry import ModelRef
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.commands import app
from streaming_job.dead_letters.letter import LetterError
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.log.partitioner import KeyGroups, Partitioner

pytestmark = pytest.mark.integration

PARTITIONS = 3
CARD = "card-0001"
TRANSACTION = json.dumps(
    {
        "transaction_id": "t", "card_id": CARD, "merchant_id": "m", "amount": 1, "currency": "EUR",
        "country": "FR", "event_time": 1,
    }
).encode()  # fmt: skip
LARGE_KEY = b"k" * 300_000


def rollout(size: int, name: str) -> bytes:
    """A valid rollout with a note of a given size."""
    model = ModelRef("fraud", "1", "models:/fraud/1", "0" * 64, ("amount:1",))
    proposal, _ = installed(name, model, Policy(0.5, 10))
    fields = json.loads(proposal.to_json())
    return json.dumps({**fields, "note": "x" * size}).encode()


@dataclass(frozen=True)
class Letters:
    """Topics of one test, and `fraud dead-letters` on them."""

    servers: str
    topics: Topics
    wait_for: Callable[..., object]

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> Message:
        """Write a record."""
        done: list[Message] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            done.append(message)

        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 4_000_000})
        producer.produce(topic, value, key, partition, on_delivery=delivered)
        assert producer.flush(30) == 0
        return done[0]

    def refuse(self, reason: Reason, topic: str, partition: int, key: bytes, value: bytes) -> DeadLetter:
        """Write a record, and the dead letter that the job would write for it."""
        offset = self.send(topic, partition, key, value).offset()
        letter = DeadLetter(topic, partition, int(offset or 0), 1500, key, value, reason, "why")
        self.write(letter)
        return letter

    def write(self, letter: DeadLetter) -> None:
        """Write a dead letter."""
        self.send(self.topics.dead_letters, 0, letter.record_key, letter.encode())

    def expire(self, letter: DeadLetter) -> None:
        """Delete a record and those before it, as retention does."""
        partition = TopicPartition(letter.topic, letter.partition, letter.offset + 1)
        admin = broker.admin(self.servers)
        admin.delete_records([partition])[partition].result(timeout=30)

    def run(self, *arguments: str, partitioner: Partitioner = Partitioner.MURMUR2) -> Result:
        """Run `fraud dead-letters`."""
        names = {f"FRAUD_TOPICS__{field.upper()}": name for field, name in self.topics}
        environment = {
            "FRAUD_BOOTSTRAP_SERVERS": self.servers,
            "FRAUD_PARTITIONER": partitioner.value,
            **names,
        }
        return CliRunner().invoke(app, arguments, env=environment)

    def told(self, *arguments: str, partitioner: Partitioner = Partitioner.MURMUR2) -> str:
        """Run a command that must succeed; return its output."""
        outcome = self.run(*arguments, partitioner=partitioner)
        assert outcome.exit_code == 0, outcome.exception
        return outcome.stdout

    def sent_again(self, topic: str, least: int = 1) -> list[Record]:
        """The records that a replay has written; a commit returns before its records can be read."""
        result: list[Record] = []

        def are_readable() -> bool:
            records = TopicLog(self.servers).read(topic)
            result[:] = [record for record in records if "dead_letter" in dict(record.headers)]
            return len(result) >= least

        self.wait_for(are_readable, what="the records that were sent again")
        return result


@pytest.fixture
def letters(stack: Endpoints, topic_names: Callable[[], Topics], wait_for: Callable[..., object]) -> Letters:
    topics = topic_names()
    broker.create(stack.bootstrap_servers, topics, partitions=PARTITIONS)
    return Letters(stack.bootstrap_servers, topics, wait_for)


def wrong_partition(partitioner: Partitioner) -> int:
    return (KeyGroups(partitioner, PARTITIONS, 1).partition_of(CARD) + 1) % PARTITIONS


def test_large_records_are_listed_written_whole_and_replayed_whole(letters: Letters, tmp_path: Path) -> None:
    topics = letters.topics
    value = rollout(3_000_000, "r")
    letters.refuse(Reason.INVALID_VALUE, topics.model_rollouts, 0, b"r", value)
    partition = wrong_partition(Partitioner.MURMUR2)
    letters.refuse(Reason.TOO_LATE, topics.transactions, partition, LARGE_KEY, TRANSACTION)

    large_value, large_key = (json.loads(line) for line in letters.told("list", "--json").splitlines())
    assert (large_value["value"], large_value["value_bytes"]) == (None, len(value))
    assert (large_key["key"], large_key["key_bytes"]) == (None, len(LARGE_KEY))

    file = tmp_path / "letters"
    assert "2 dead letters are in" in letters.told("list", "--raw", str(file))
    large_value, large_key = (json.loads(line) for line in file.read_text().splitlines())
    assert (large_value["key"], large_value["value"].encode()) == ("r", value)
    assert (large_key["key"].encode(), large_key["value"].encode()) == (LARGE_KEY, TRANSACTION)

    # replayed from the topic of dead letters; the file then has nothing left to replay, except with --again
    output = letters.told("replay", "--topic", topics.model_rollouts, "--topic", topics.transactions)
    assert json.loads(output) == {"sent": 2, "sent_before": 0}
    assert json.loads(letters.told("replay", str(file))) == {"sent": 0, "sent_before": 2}
    assert json.loads(letters.told("replay", str(file), "--again")) == {"sent": 2, "sent_before": 0}
    result = letters.sent_again(topics.model_rollouts, least=2)
    assert [(record.key, record.value) for record in result] == [(b"r", value)] * 2
    result = letters.sent_again(topics.transactions, least=2)
    assert [(record.key, record.value) for record in result] == [(LARGE_KEY, TRANSACTION)] * 2
    assert partition not in {record.partition for record in result}


@pytest.mark.parametrize("partitioner", Partitioner)
def test_a_transaction_of_the_wrong_partition_is_sent_to_its_own(
    letters: Letters, partitioner: Partitioner
) -> None:
    topic, partition = letters.topics.transactions, wrong_partition(partitioner)
    letters.refuse(Reason.WRONG_PARTITION, topic, partition, CARD.encode(), TRANSACTION)
    output = letters.told("replay", "--reason", "wrong_partition", partitioner=partitioner)
    assert json.loads(output) == {"sent": 1, "sent_before": 0}
    result = letters.sent_again(topic)
    # the partition that the client's own partitioner chooses
    name = {Partitioner.MURMUR2: "murmur2_random", Partitioner.CRC32: "consistent_random"}[partitioner]
    done: list[Message] = []
    producer = Producer({"bootstrap.servers": letters.servers, "partitioner": name})
    producer.produce(topic, TRANSACTION, CARD, on_delivery=lambda _, message: done.append(message))
    assert producer.flush(30) == 0
    assert [record.partition for record in result] == [done[0].partition()] != [partition]


def test_deleted_records_are_reported_and_not_replayed(letters: Letters, tmp_path: Path) -> None:
    topics = letters.topics
    gone = letters.refuse(Reason.INVALID_VALUE, topics.model_rollouts, 0, b"r1", rollout(3_000_000, "r1"))
    value = rollout(3_000_000, "r2")
    there = letters.refuse(Reason.INVALID_VALUE, topics.model_rollouts, 0, b"r2", value)
    letters.expire(gone)
    # as in recreated topics: another record at the offset, a log that ends before it, no partition, no topic
    letters.write(replace(there, value=rollout(3_000_000, "r3")))
    letters.write(replace(there, offset=there.offset + 100))
    letters.write(replace(there, partition=7))
    letters.write(replace(there, topic="no-such-topic"))

    file = tmp_path / "letters"
    outcome = letters.run("list", "--raw", str(file))
    assert outcome.exit_code == 0
    assert "6 dead letters are in" in outcome.stdout
    assert outcome.stderr.startswith("5 dead letters are not whole, and their records are gone from the log")
    assert f"record {gone.topic}/0/{gone.offset}: value of {len(gone.value or b''):,} bytes" in outcome.stderr
    lines = file.read_text().splitlines()
    assert [json.loads(line).get("value", "").encode() for line in lines] == [b"", value, b"", b"", b"", b""]

    for arguments in (["--topic", topics.model_rollouts], [str(file)]):
        outcome = letters.run("replay", *arguments)
        assert isinstance(outcome.exception, LetterError)
        assert "their records are gone from the log" in str(outcome.exception)
        assert "leave these dead letters out" in str(outcome.exception)

    # as the message says: the first letter gets a value, the others without a record are left out
    line = {**json.loads(lines[0]), "value": rollout(10, "r1").decode()}
    file.write_text(f"{json.dumps(line)}\n{lines[1]}\n")
    assert json.loads(letters.told("replay", str(file))) == {"sent": 2, "sent_before": 0}
    # nothing else was sent, so the refused replays have sent nothing
    result = letters.sent_again(topics.model_rollouts, least=2)
    assert [record.value for record in result] == [rollout(10, "r1"), value]
