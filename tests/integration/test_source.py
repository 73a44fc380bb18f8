"""Ranges of a real broker's log: every committed record once, in order, whole; what is missing is told."""

import json
import random
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from pyspark.sql.streaming.datasource import ReadAllAvailable

from deploy.local.stack import Endpoints
from streaming_job.log import topic_reader
from streaming_job.contracts.topics import Topics
from streaming_job.source import ends, ranges
from streaming_job.source.card_log import CardLogReader, Reading, Slice
from streaming_job.log.end_offsets import LogEnds
from streaming_job.log.errors import LogError
from streaming_job.log.librdkafka import LibraryError
from streaming_job.log.follower import RangeReader

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key, value."""


@pytest.fixture(scope="module")
def reader(stack: Endpoints) -> RangeReader:
    return RangeReader({"bootstrap.servers": stack.bootstrap_servers})


@pytest.fixture
def topic(stack: Endpoints) -> Iterator[str]:
    """A topic of one partition, its name new."""
    admin, name = AdminClient({"bootstrap.servers": stack.bootstrap_servers}), f"log-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    yield name
    admin.delete_topics([name])[name].result()


def read(reader: RangeReader, topic: str, start: int, end: int) -> list[Row]:
    rows: list[Row] = []
    for records in reader.read(topic, 0, start, end):
        assert (records.topic, records.partition) == (topic, 0)
        columns = (records.offsets.tolist(), records.arrivals.tolist())
        rows += zip(*columns, records.keys.to_pylist(), records.values.to_pylist(), strict=True)
    return rows


def last(stack: Endpoints, topic: str) -> int:
    found = LogEnds({"bootstrap.servers": stack.bootstrap_servers}, topic, ()).last()
    assert found is not None
    return found[topic]["0"]


def as_confluent_kafka_reads(stack: Endpoints, topic: str) -> list[Row]:
    consumer = topic_reader.consumer(stack.bootstrap_servers, {}, "test")
    try:
        return [
            (message.offset() or 0, message.timestamp()[1], message.key(), message.value())
            for message in topic_reader.to_end(consumer, TopicPartition(topic, 0, 0))
        ]
    finally:
        consumer.close()


def fill(stack: Endpoints, topic: str, rng: random.Random, transactions: int) -> None:
    """Records in transactions, some of which are aborted, each followed by its mark."""
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(rng.randrange(1, 20)):
            key, value = (rng.choice((None, b"", rng.randbytes(rng.randrange(300)))) for _ in range(2))
            producer.produce(topic, value, key)
        producer.flush()  # what is to be aborted is to be there
        if rng.random() < 0.7:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def test_ranges_cut_anywhere_hold_each_committed_record_once(
    stack: Endpoints, reader: RangeReader, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    fill(stack, topic, rng, transactions=60)
    end, expected = last(stack, topic), as_confluent_kafka_reads(stack, topic)
    assert 100 < len(expected) < end - 60
    assert {value for _, _, _, value in expected} > {None, b""}
    for chunk in (1, 7, 50_000):
        monkeypatch.setattr(ranges, "CHUNK", chunk)
        assert read(reader, topic, 0, end) == expected
    cuts = sorted({0, end, *(rng.randrange(end) for _ in range(40))})
    assert [row for start, stop in pairwise(cuts) for row in read(reader, topic, start, stop)] == expected


def test_an_open_transaction_is_not_read(stack: Endpoints, reader: RangeReader, topic: str) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        end = last(stack, topic)
        assert [row[3] for row in read(reader, topic, 0, end)] == [b"first"][: value == b"second"]
        producer.commit_transaction()
    assert [row[3] for row in read(reader, topic, 0, last(stack, topic))] == [b"first", b"second"]


def test_records_that_retention_has_taken_are_missed(
    stack: Endpoints, reader: RangeReader, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, str(number))
    producer.flush()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    place = TopicPartition(topic, 0, 5)
    admin.delete_records([place])[place].result()
    assert [row[3] for row in read(reader, topic, 5, 20)] == [str(number).encode() for number in range(5, 20)]
    with pytest.raises(LogError, match=rf"records of {topic}-0 from offset 3 to 20 are gone"):
        read(reader, topic, 3, 20)
    assert LogEnds({"bootstrap.servers": stack.bootstrap_servers}, topic, ()).first() == {topic: {"0": 5}}


def test_silence_is_told(
    stack: Endpoints, reader: RangeReader, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "READ_PATIENCE_S", 1.5)
    monkeypatch.setattr(ends, "PATIENCE_S", 0.5)
    with pytest.raises(
        LogError, match=f"no record of {topic}-0 from offset 0 on, to be read up to 1, has come"
    ):
        read(reader, topic, 0, 1)
    deaf = RangeReader({"bootstrap.servers": "127.0.0.1:9"})
    with pytest.raises(LogError, match=r"has come in 2 s \(.*Connection refused"):
        read(deaf, topic, 0, 1)
    nobody = LogEnds({"bootstrap.servers": "127.0.0.1:9", "log_level": "0"}, topic, ())
    assert nobody.last() is None
    with pytest.raises(LogError, match="the ends of the input topics cannot be read"):
        nobody.first()


def test_batches_follow_each_other_without_a_gap(
    stack: Endpoints, topic_names: Callable[[], Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = topic_names().model_copy(update={"profiles": f"profiles-{uuid.uuid4()}"})
    brokers = {"bootstrap.servers": stack.bootstrap_servers}
    admin, producer = AdminClient(brokers), Producer(brokers)
    for made in admin.create_topics(
        [NewTopic(name, 1, 1) for name in (topics.transactions, *topics.tables)]
    ).values():
        made.result()
    for number in range(10):
        producer.produce(topics.transactions, str(number))
    producer.flush()
    place = TopicPartition(topics.transactions, 0, 4)
    admin.delete_records([place])[place].result()
    monkeypatch.setattr(ends, "NEW_PARTITIONS_S", 0.0)
    planned = CardLogReader(Reading(tuple(brokers.items()), topics, 2, 5, 0, 0))
    first = planned.initialOffset()
    assert first[topics.transactions] == {"0": 4}
    # written down before anything is read
    assert planned.latestOffset(first, ReadAllAvailable()) == first
    second = planned.latestOffset(first, ReadAllAvailable())
    assert planned.partitions(first, second) == [Slice(topics.transactions, 0, 4, 9)]
    admin.create_partitions([NewPartitions(topics.transactions, 2)])[topics.transactions].result()
    producer = Producer(brokers)  # the other one would not know the partition yet
    producer.produce(topics.transactions, b"new", partition=1)
    producer.flush()
    third = planned.latestOffset(second, ReadAllAvailable())
    assert planned.partitions(second, third) == [
        Slice(topics.transactions, 0, 9, 10),
        Slice(topics.transactions, 1, 0, 1),
    ]
    # Spark compares the words
    assert json.dumps(planned.latestOffset(third, ReadAllAvailable())) == json.dumps(third)


def test_what_is_promised_is_not_for_settings_to_change(
    stack: Endpoints, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "READ_PATIENCE_S", 5.0)
    careless = {
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": "false",
    }
    reader = RangeReader({"bootstrap.servers": stack.bootstrap_servers, **careless})
    fill(stack, topic, random.Random(2), transactions=10)
    end = last(stack, topic)
    assert read(reader, topic, 0, end) == as_confluent_kafka_reads(stack, topic)
    admin, place = AdminClient({"bootstrap.servers": stack.bootstrap_servers}), TopicPartition(topic, 0, 5)
    admin.delete_records([place])[place].result()
    with pytest.raises(LogError, match="are gone"):
        read(reader, topic, 3, end)


def test_settings_that_librdkafka_does_not_know_are_refused() -> None:
    with pytest.raises(LibraryError, match=r"No such configuration property.*correct FRAUD_KAFKA"):
        RangeReader({"bootstrap.server": "x"})
