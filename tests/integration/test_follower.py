"""The follower of a real broker's log reads each committed record once, in order, or reports missing ones."""

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from deploy.local.stack import Endpoints
from streaming_job.log import (
    clients,
    end_offsets,
    follower,
    message_batch,
    table_follower,
    topic_reader,
    watermarks,
)
from streaming_job.log.clients import Address
from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.errors import LogError, LogUnavailableError
from streaming_job.log.ffi import LibraryError
from streaming_job.log.follow import to_end
from streaming_job.log.follower import LogFollower
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Offsets, PartitionId, Records
from streaming_job.log.table_follower import TableFollower
from streaming_job.log.watermarks import Watermarks

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key, value."""
ALL = 1 << 40
PARTITIONS = 3
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def brokers(stack: Endpoints) -> dict[str, str]:
    return {"bootstrap.servers": stack.bootstrap_servers}


@pytest.fixture
def topics(brokers: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Function that creates topics of PARTITIONS partitions with unique names."""
    admin, names = AdminClient(brokers), []

    def make() -> str:
        names.append(f"log-{len(names)}-{uuid.uuid4()}")
        limits = {"max.message.bytes": str(20 << 20)}
        admin.create_topics([NewTopic(names[-1], PARTITIONS, 1, config=limits)])[names[-1]].result()
        return names[-1]

    yield make
    for done in admin.delete_topics(names).values():
        done.result()


@pytest.fixture
def topic(topics: Callable[[], str]) -> str:
    return topics()


@pytest.fixture
def follow(brokers: dict[str, str]) -> Iterator[Callable[..., LogFollower]]:
    """Function that follows partitions until the end of the test."""
    followers: list[LogFollower] = []

    def begin(positions: Offsets, **client: str) -> LogFollower:
        followers.append(
            LogFollower({**brokers, **{k.replace("_", "."): v for k, v in client.items()}}, positions)
        )
        return followers[-1]

    yield begin
    for started in followers:
        started.close()


def from_beginning(*topics: str) -> Offsets:
    return {(topic, partition): 0 for topic in topics for partition in range(PARTITIONS)}


def ends(brokers: dict[str, str], *topics: str) -> Offsets:
    with EndOffsets(brokers, topics) as asked:
        return asked.last()


def add(rows: dict[PartitionId, list[Row]], taken: list[Records]) -> None:
    """Check the layout of records, and add them to the rows of their partitions."""
    assert len({records.topic for records in taken}) == len(taken)
    for records in taken:
        partitions = records.partitions.tolist()
        assert partitions == sorted(partitions)
        for column in (records.keys, records.values):
            column.validate(full=True)
            assert column.offset == 0
            assert column.type == pa.binary()
        columns = (records.offsets.tolist(), records.arrivals.tolist())
        columns += (records.keys.to_pylist(), records.values.to_pylist())
        for partition, *row in zip(partitions, *columns, strict=True):
            rows.setdefault((records.topic, partition), []).append(tuple(row))


def read(
    log: LogFollower, end: Offsets, most: int = 50_000, most_bytes: int = ALL
) -> dict[PartitionId, list[Row]]:
    """Read all records up to the ends."""
    rows: dict[PartitionId, list[Row]] = {}
    deadline = time.monotonic() + DEADLINE_S
    while any(log.positions[partition] < offset for partition, offset in end.items()):
        taken = log.take(most, most_bytes, 0.05)
        assert sum(map(len, taken)) <= most
        add(rows, taken)
        assert time.monotonic() < deadline, (log.positions, end, log.trouble())
    return rows


def as_confluent_kafka_reads(brokers: dict[str, str], places: Offsets) -> dict[PartitionId, list[Row]]:
    consumer = clients.reader(Address(brokers["bootstrap.servers"]), "test")
    try:
        rows = {
            partition: [
                (message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                for message in to_end(consumer, TopicPartition(*partition, offset))
            ]
            for partition, offset in places.items()
        }
    finally:
        consumer.close()
    return {partition: result for partition, result in rows.items() if result}


def fill(brokers: dict[str, str], topics: tuple[str, ...], rng: random.Random, transactions: int) -> None:
    """Write records to all partitions, in transactions, some of which are aborted."""
    producer = Producer({**brokers, "transactional.id": topics[0]})
    producer.init_transactions()
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(rng.randrange(1, 20)):
            key, value = (rng.choice((None, b"", rng.randbytes(rng.randrange(300)))) for _ in range(2))
            producer.produce(rng.choice(topics), value, key, partition=rng.randrange(PARTITIONS))
        producer.flush()  # the records must be on the broker before the abort
        if rng.random() < 0.7:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def produce(brokers: dict[str, str], topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({**brokers, "message.max.bytes": 20 << 20})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def delete_before(brokers: dict[str, str], topic: str, offset: int) -> None:
    admin, partition = AdminClient(brokers), TopicPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result()


def add_partition(brokers: dict[str, str], topic: str) -> None:
    admin = AdminClient(brokers)  # the client must live until the answer arrives
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()


@pytest.mark.parametrize(
    ("most", "most_bytes"), [(1, ALL), (7, ALL), (50_000, 1), (50_000, 500), (50_000, ALL)]
)
def test_each_committed_record_is_read_once_in_any_batches(
    brokers: dict[str, str],
    topics: Callable[[], str],
    follow: Callable[..., LogFollower],
    most: int,
    most_bytes: int,
) -> None:
    names = (topics(), topics())
    fill(brokers, names, random.Random(1), transactions=60)
    end, start = ends(brokers, *names), from_beginning(*names)
    expected = as_confluent_kafka_reads(brokers, start)
    assert set(expected) == set(start)
    # the offsets not read: aborted records, and at least one marker for each of 60 transactions
    assert 100 < sum(map(len, expected.values())) < sum(end.values()) - 60
    assert {row[3] for rows in expected.values() for row in rows} > {None, b""}
    log = follow(start)
    assert read(log, end, most, most_bytes) == expected
    assert log.positions == end
    assert log.take(most, most_bytes, 0.0) == []


def test_a_follower_continues_from_any_position(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    rng = random.Random(2)
    fill(brokers, (topic,), rng, transactions=40)
    end = ends(brokers, topic)
    for _ in range(4):
        cuts = {partition: rng.randrange(offset + 1) for partition, offset in end.items()}
        assert read(follow(cuts), end) == as_confluent_kafka_reads(brokers, cuts)


def test_an_open_transaction_is_not_read_and_its_marker_moves_the_position(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    producer = Producer({**brokers, "transactional.id": topic})
    producer.init_transactions()
    log, rows = follow(from_beginning(topic)), []
    for number, value in enumerate((b"first", b"second", b"third")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        assert ends(brokers, topic)[topic, 0] == 2 * number
        assert log.take(10, ALL, 0.03) == []
        if value == b"second":
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        marked = {(topic, 0): 2 * (number + 1)}
        deadline = time.monotonic() + DEADLINE_S
        # brokers write the marker of a transaction after they have answered its end
        while (last := ends(brokers, topic))[topic, 0] < marked[topic, 0]:
            assert time.monotonic() < deadline
        rows += [row[3] for row in read(log, last).get((topic, 0), ())]
        assert log.positions[topic, 0] == marked[topic, 0]
    assert rows == [b"first", b"third"]


def test_take_waits_for_the_first_record_only(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    log = follow(from_beginning(topic))
    begin = time.monotonic()
    assert log.take(100, ALL, 0.2) == []
    assert 0.2 <= time.monotonic() - begin < 1
    produce(brokers, topic, b"a", b"b")
    begin = time.monotonic()
    rows = [value for _ in range(2) for records in log.take(1, ALL, 10.0) for value in records.values]
    assert [value.as_py() for value in rows] == [b"a", b"b"]
    assert time.monotonic() - begin < 5


def test_very_large_records_are_bounded_by_their_bytes(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    large = [bytes([number]) * (4 << 20) for number in range(8)]
    produce(brokers, topic, *large, b"small", b"x" * (18 << 20))
    log, end, sizes, values = follow(from_beginning(topic)), ends(brokers, topic), [], []
    while log.positions != end:
        for records in log.take(50_000, 6 << 20, 1.0):
            values += records.values.to_pylist()
            sizes.append(records.values.nbytes)
    assert values == [*large, b"small", b"x" * (18 << 20)]
    # the first batch is read before the size of records is known; the last one has the record of 18 MiB
    assert len(sizes) >= 4
    assert max(sizes[1:-1]) <= (6 + 4 + 1) << 20


def test_a_small_batch_that_unpacks_to_many_bytes_is_returned_in_parts(
    brokers: dict[str, str],
    topic: str,
    follow: Callable[..., LogFollower],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 records of a megabyte of blanks, which compression makes small; `take` returns 8 MiB at most."""
    monkeypatch.setattr(message_batch, "MOST_BYTES", 8 << 20)
    large = {"batch.size": 64 << 20, "message.max.bytes": 64 << 20}
    blanks = Producer({**brokers, "compression.type": "gzip", "linger.ms": 500, **large})
    for number in range(40):
        blanks.produce(topic, b"%2d" % number + b" " * (1 << 20), partition=0)
    assert blanks.flush(60) == 0
    produce(brokers, topic, b"other", partition=1)
    log, end, sizes, seen = follow(from_beginning(topic)), ends(brokers, topic), [], []
    while log.positions != end:
        for records in log.take(50_000, 1 << 40, 1.0):
            sizes.append(records.values.nbytes)
            seen += [value.as_py()[:2] for value in records.values]
    assert sorted(seen) == sorted([b"ot", *(b"%2d" % number for number in range(40))])
    assert max(sizes) <= (8 << 20) + (1 << 16)


def test_records_deleted_by_retention_are_an_error(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    produce(brokers, topic, *(str(number).encode() for number in range(20)))
    produce(brokers, topic, b"other", partition=1)
    delete_before(brokers, topic, 5)
    assert [row[3] for row in read(follow({(topic, 0): 5}), {(topic, 0): 20})[topic, 0]] == [
        str(number).encode() for number in range(5, 20)
    ]
    log = follow({(topic, 0): 3, (topic, 1): 0})
    with pytest.raises(LogError, match=rf"records of {topic}-0 from offset 3 on are gone"):
        read(log, {(topic, 0): 20})
    assert log.positions[topic, 0] == 3
    with pytest.raises(LogError, match="are gone"):
        log.take(1, ALL, 0.0)
    # a position beyond the end, as after the topic was recreated
    with pytest.raises(LogError, match=rf"records of {topic}-0 from offset 21 on are gone"):
        read(follow({(topic, 0): 21}), {(topic, 0): 22})
    with EndOffsets(brokers, (topic,)) as asked:
        assert asked.first() == {(topic, 0): 5, (topic, 1): 0, (topic, 2): 0}
        ((_, arrival, *_),) = read(follow({(topic, 1): 0}), {(topic, 1): 1})[topic, 1]
        at = {(topic, 0): 4, (topic, 1): 0, (topic, 2): 0}  # deleted, there, not written yet
        assert [asked.arrivals(at) for _ in range(2)] == [{(topic, 1): arrival}] * 2
        assert asked.arrivals({}) == {}


def test_a_failing_partition_resumes_at_its_position_and_delays_no_other(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "GONE", ())  # an offset out of range counts as temporary
    produce(brokers, topic, b"0", b"1")
    log = follow({(topic, 0): 3, (topic, 1): 0})
    deadline = time.monotonic() + DEADLINE_S
    while not log.trouble().startswith(f"{topic}-0: "):
        assert log.take(10, ALL, 0.02) == []
        assert time.monotonic() < deadline
    produce(brokers, topic, b"other", partition=1)
    assert [row[3] for row in read(log, {(topic, 1): 1})[topic, 1]] == [b"other"]
    assert log.positions[topic, 0] == 3
    produce(brokers, topic, b"2", b"3", b"4")
    assert [row[0::3] for row in read(log, {(topic, 0): 5})[topic, 0]] == [(3, b"3"), (4, b"4")]
    assert log.trouble() == ""


def test_a_partition_that_keeps_failing_is_an_error(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "GONE", ())
    monkeypatch.setattr(follower, "PATIENCE_S", 0.5)
    log = follow({(topic, 0): 1})
    with pytest.raises(
        LogUnavailableError, match=rf"{topic}-0 from offset 1 on cannot be read for 0 s \(.*not available"
    ):
        read(log, {(topic, 0): 2})


def test_a_partition_that_does_not_exist_yet_is_awaited(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    produce(brokers, topic, b"before")
    log = follow({(topic, 0): 0, (topic, PARTITIONS): 0}, topic_metadata_refresh_interval_ms="100")
    assert [row[3] for row in read(log, {(topic, 0): 1})[topic, 0]] == [b"before"]
    add_partition(brokers, topic)
    produce(brokers, topic, b"late", partition=PARTITIONS)
    assert [row[3] for row in read(log, {(topic, PARTITIONS): 1})[topic, PARTITIONS]] == [b"late"]


def test_a_limit_is_kept_and_can_be_lifted_without_a_gap(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    fill(brokers, (topic,), random.Random(4), transactions=40)
    end, start = ends(brokers, topic), from_beginning(topic)
    expected = as_confluent_kafka_reads(brokers, start)
    rng, log = random.Random(5), follow(start)
    rows: dict[PartitionId, list[Row]] = {}
    for _ in range(5):
        limits = {
            partition: rng.randrange(log.positions[partition], offset + 1)
            for partition, offset in end.items()
        }
        del limits[topic, 1]
        log.limit(limits)
        for tp, result in read(log, limits).items():
            rows.setdefault(tp, []).extend(result)
        add(rows, log.take(50_000, ALL, 0.05))
        assert {partition: log.positions[partition] for partition in limits} == limits
        assert all(rows[partition][-1][0] < limit for partition, limit in limits.items() if partition in rows)
    log.limit(None)
    for tp, result in read(log, end).items():
        rows.setdefault(tp, []).extend(result)
    assert rows == expected
    assert log.positions == end


def test_an_absent_broker_is_reported_and_blocks_no_call(follow: Callable[..., LogFollower]) -> None:
    log = follow({("topic", 0): 0}, bootstrap_servers="127.0.0.1:9")
    deadline = time.monotonic() + DEADLINE_S
    while "refused" not in log.trouble():
        assert log.take(10, ALL, 0.02) == []
        assert time.monotonic() < deadline
    nobody = {"bootstrap.servers": "127.0.0.1:9"}
    patience, end_offsets.TIMEOUT_S = end_offsets.TIMEOUT_S, 0.5
    try:
        with EndOffsets(nobody, ("topic",)) as asked, pytest.raises(KafkaException):
            asked.last()
    finally:
        end_offsets.TIMEOUT_S = patience


def test_settings_cannot_change_what_exactly_once_depends_on(
    brokers: dict[str, str], topic: str, follow: Callable[..., LogFollower]
) -> None:
    careless = {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_uncommitted",
        "enable_partition_eof": "false",
    }
    fill(brokers, (topic,), random.Random(6), transactions=10)
    end, start = ends(brokers, topic), from_beginning(topic)
    assert read(follow(start, **careless), end) == as_confluent_kafka_reads(brokers, start)
    delete_before(brokers, topic, 2)
    with pytest.raises(LogError, match="are gone"):
        read(follow(start, **careless), end)


def test_settings_that_librdkafka_does_not_know_are_refused() -> None:
    with pytest.raises(LibraryError, match=r"No such configuration property.*correct FRAUD_KAFKA"):
        LogFollower({"bootstrap.server": "x"}, {})


def test_a_follower_without_partitions_returns_no_records(follow: Callable[..., LogFollower]) -> None:
    log = follow({})
    assert log.take(10, ALL, 0.01) == []
    assert log.positions == {}


def test_a_closed_follower_releases_threads_and_memory(brokers: dict[str, str], topic: str) -> None:
    produce(brokers, topic, *(bytes(100_000) for _ in range(400)))
    process = psutil.Process()
    before = process.num_threads()
    sizes = []
    for _ in range(12):
        log = LogFollower(brokers, from_beginning(topic))
        for _ in range(3):
            log.take(50_000, 4 << 20, 5.0)
        log.close()
        log.close()
        sizes.append(process.memory_info().rss)
    assert process.num_threads() <= before  # threads of earlier tests may have ended
    # each follower's queue held 16 MB and more, some of which the C library keeps
    assert sizes[-1] - sizes[0] < 64 << 20


def test_end_offsets_are_read_quickly_and_for_new_partitions_too(
    brokers: dict[str, str], topics: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (topics(), topics())
    produce(brokers, names[1], b"a", b"b", partition=2)
    with EndOffsets(brokers, names) as asked:
        assert asked.partitions(names[0]) == [0, 1, 2]
        # a new partition has no leader for a moment
        assert with_retries(lambda: asked.last(names[1:])) == {
            (names[1], 0): 0,
            (names[1], 1): 0,
            (names[1], 2): 2,
        }
        assert set(with_retries(asked.last)) == set(from_beginning(*names))
        add_partition(brokers, names[0])
        monkeypatch.setattr(end_offsets, "NEW_PARTITIONS_S", 0.0)
        deadline = time.monotonic() + DEADLINE_S
        while (names[0], 3) not in with_retries(asked.last):
            assert time.monotonic() < deadline
    with EndOffsets(brokers, ("no-such-topic",)) as asked, pytest.raises(KafkaException):
        asked.last()


def test_high_watermarks_lie_beyond_open_transactions_and_show_new_partitions(
    brokers: dict[str, str], topics: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (topics(), topics())
    produce(brokers, names[1], b"a", b"b", partition=2)
    monkeypatch.setattr(watermarks, "NEW_PARTITIONS_S", 0.1)
    monkeypatch.setattr(watermarks, "TIMEOUT_S", 0.5)  # for the topic that is missing
    with contextlib.closing(Watermarks(brokers, names)) as asked:
        assert with_retries(lambda: asked.last(names)) == ends(brokers, *names)
        open_one = OpenTransaction(brokers, names[0], b"a fact")
        assert asked.last(names) == ends(brokers, *names) | {(names[0], 0): 1}
        assert asked.last(names[1:]) == ends(brokers, names[1])
        open_one.producer.commit_transaction(DEADLINE_S)
        add_partition(brokers, names[1])
        deadline = time.monotonic() + DEADLINE_S
        while (names[1], 3) not in with_retries(lambda: asked.last(names)):
            assert time.monotonic() < deadline
    with contextlib.closing(Watermarks(brokers, ("no-such-topic",))) as asked:
        with pytest.raises(KafkaException) as raised:
            asked.last(("no-such-topic",))
        assert topic_reader.is_missing(raised.value)


class OpenTransaction:
    """A transaction with one record on a topic, left open as by a slow writer."""

    def __init__(self, brokers: dict[str, str], topic: str, value: bytes) -> None:
        self.producer = Producer({**brokers, "transactional.id": f"slow-{uuid.uuid4()}"})
        self.producer.init_transactions(DEADLINE_S)
        self.producer.begin_transaction()
        self.producer.produce(topic, value, partition=0)
        assert self.producer.flush(DEADLINE_S) == 0


def read_to_ends(tables: TableFollower, *topics: str) -> list[bytes]:
    """Read tables to their ends, by default all of them."""
    every = topics or {topic for topic, _ in tables.positions}
    tables.look(every)
    return [value for records in tables.read_to_ends(every) for value in records.values.to_pylist()]


def read_committed(tables: TableFollower) -> list[bytes]:
    """Read to the ends until there are records: brokers write a commit's marker after their answer."""
    deadline = time.monotonic() + DEADLINE_S
    while not (values := read_to_ends(tables)):
        assert time.monotonic() < deadline
    return values


@pytest.fixture
def tables(brokers: dict[str, str], topics: Callable[[], str]) -> Iterator[tuple[TableFollower, str, str]]:
    """A follower of two tables, and their topics; it waits for open transactions on the first."""
    awaited, other = topics(), topics()
    follower = TableFollower(
        brokers, (awaited, other), (awaited,), from_beginning(awaited, other), 1_000, ALL
    )
    yield follower, awaited, other
    follower.close()


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_open_transaction_on_an_awaited_table_is_waited_for(
    brokers: dict[str, str], tables: tuple[TableFollower, str, str], is_committed: bool
) -> None:
    """A record takes effect from the time of its writing, which is before its commit makes it readable."""
    follower_of_tables, awaited, other = tables
    produce(brokers, other, b"a profile")
    open_one = OpenTransaction(brokers, awaited, b"an event")
    end = open_one.producer.commit_transaction if is_committed else open_one.producer.abort_transaction
    ended = threading.Event()

    def end_it() -> None:
        end(DEADLINE_S)
        ended.set()

    timer = threading.Timer(0.5, end_it)
    timer.start()
    records = read_to_ends(follower_of_tables)
    assert sorted(records) == sorted([b"a profile", *([b"an event"] if is_committed else [])])
    # the follower may see the commit before the producer gets its answer
    assert ended.wait(DEADLINE_S)
    timer.join()
    assert read_to_ends(follower_of_tables) == []


def test_an_open_transaction_on_another_table_is_not_waited_for(
    brokers: dict[str, str], tables: tuple[TableFollower, str, str]
) -> None:
    follower_of_tables, awaited, other = tables
    produce(brokers, awaited, b"an event")
    open_one = OpenTransaction(brokers, other, b"a fact")
    assert read_to_ends(follower_of_tables) == [b"an event"]
    open_one.producer.commit_transaction(DEADLINE_S)
    assert read_committed(follower_of_tables) == [b"a fact"]


def test_the_end_of_another_table_is_not_waited_for_but_its_records_come_with_the_rest(
    brokers: dict[str, str], tables: tuple[TableFollower, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    follower_of_tables, awaited, other = tables
    read_to_ends(follower_of_tables)
    last, ask, asked = EndOffsets.last, Watermarks.ask, set()
    monkeypatch.setattr(EndOffsets, "last", lambda self, topics: asked.add(topics) or last(self, topics))
    monkeypatch.setattr(Watermarks, "ask", lambda self, topics: asked.add(topics) or ask(self, topics))
    open_one = OpenTransaction(brokers, other, b"a fact")
    open_one.producer.commit_transaction(DEADLINE_S)
    produce(brokers, awaited, b"an event")
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while b"a fact" not in values:
        values += read_to_ends(follower_of_tables, awaited)
        assert b"an event" in values
        assert time.monotonic() < deadline
    assert sorted(values) == [b"a fact", b"an event"]
    assert asked == {(awaited,)}  # an end that is not known cannot be waited for


def test_a_transaction_that_hangs_is_waited_for_once_and_the_next_one_again(
    brokers: dict[str, str],
    tables: tuple[TableFollower, str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(table_follower, "OPEN_S", 0.5)
    follower_of_tables, awaited, other = tables
    hung = OpenTransaction(brokers, awaited, b"late")
    begun = time.monotonic()
    assert read_to_ends(follower_of_tables) == []
    assert time.monotonic() - begun > 0.5
    warning = f"transaction on {awaited}-0@1 has been open"
    assert caplog.text.count(warning) == 1
    produce(brokers, other, b"a profile")
    assert read_to_ends(follower_of_tables) == [b"a profile"]
    assert caplog.text.count(warning) == 1
    hung.producer.commit_transaction(DEADLINE_S)
    assert read_committed(follower_of_tables) == [b"late"]
    OpenTransaction(brokers, awaited, b"never")
    begun = time.monotonic()
    assert read_to_ends(follower_of_tables) == []
    assert time.monotonic() - begun > 0.5


@pytest.mark.parametrize(
    ("partitioner", "setting"), [(Partitioner.MURMUR2, "murmur2_random"), (Partitioner.CRC32, None)]
)
def test_cards_are_in_the_partitions_that_producers_choose(
    brokers: dict[str, str],
    topic: str,
    follow: Callable[..., LogFollower],
    partitioner: Partitioner,
    setting: str | None,
) -> None:
    producer = Producer({**brokers, **({"partitioner": setting} if setting else {})})
    rng = random.Random(7)
    for number in range(500):
        producer.produce(topic, b"", f"card-{number}" + "é" * rng.randrange(9))
    producer.flush()
    log, end, seen = follow(from_beginning(topic)), ends(brokers, topic), 0
    groups = KeyGroups(partitioner, PARTITIONS, 2)
    while log.positions != end:
        for records in log.take(100, ALL, 0.1):
            assert groups.partitions_of(records.keys).tolist() == records.partitions.tolist()
            seen += len(records)
    assert seen == 500


def test_a_record_with_its_producers_timestamp_is_refused(
    brokers: dict[str, str], topics: Callable[[], str], wait_for: Callable[..., object]
) -> None:
    """The types are those of the records: a topic's setting may have changed since they were written."""
    topic, other = topics(), topics()
    admin, producer = AdminClient(brokers), Producer(brokers)

    def stamp(by: str) -> None:
        entry = ConfigEntry("message.timestamp.type", by, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()
        asked = ConfigResource(ResourceType.TOPIC, topic)
        wait_for(
            lambda: admin.describe_configs([asked])[asked].result()["message.timestamp.type"].value == by
        )

    def send(name: str, records: int) -> None:
        for number in range(records):
            producer.produce(name, b"v%d" % number, partition=1)
        assert producer.flush(DEADLINE_S) == 0

    stamp("LogAppendTime")
    send(topic, 7)
    log = LogFollower(brokers, from_beginning(topic, other), by_broker=[topic])
    try:
        rows = read(log, {(topic, 1): 7})
        assert len(rows[topic, 1]) == 7
        send(other, 3)  # of another topic, whose records may have any timestamp
        assert len(read(log, {(other, 1): 3})[other, 1]) == 3
        stamp("CreateTime")
        send(topic, 2)
        with pytest.raises(LogError, match=f"{topic}-1 at offset 7 has its producer's timestamp"):
            read(log, {(topic, 1): 9})
    finally:
        log.close()
    anywhere = LogFollower(brokers, from_beginning(topic))
    try:
        assert len(read(anywhere, {(topic, 1): 9})[topic, 1]) == 9
    finally:
        anywhere.close()
