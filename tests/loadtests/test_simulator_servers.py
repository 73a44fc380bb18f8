"""The simulator with a real Kafka and a real Postgres."""

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deploy.local import topics as stack_topics
from deploy.local.launch import FRAUD
from deploy.local.stack import Endpoints
from feature_store.catalogue import DAY_MS
from loadtests.rig.pace import Pace
from loadtests.rig.send import Sender, SendError
from loadtests.simulator import destination, profiles
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.churn import Change, ProfileChurn, ProfileFeed
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.profiles import COLUMNS, ProfileError
from loadtests.simulator.replay import Replay
from loadtests.simulator.scenarios import FraudMix
from loadtests.simulator.timeline import Records, timeline
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.contracts.topics import Topics
from streaming_job.log import topic_reader
from streaming_job.log.clients import Address

pytestmark = pytest.mark.integration

HEAVY = Disturbances(late=0.02, out_of_order=0.02, future=0.01, malformed=0.05, duplicated=0.05)


@pytest.fixture(scope="module")
def world() -> World:
    return World.create(11, cards=2_000, merchants=200)


@pytest.fixture
def names(stack: Endpoints, topic_names: Callable[[], Topics]) -> Topics:
    """Topics whose records get the broker's timestamp."""
    topics = topic_names()
    stack_topics.create(stack.bootstrap_servers, topics)
    return topics


@pytest.fixture
def archive(stack: Endpoints, topic_names: Callable[[], Topics]) -> Topics:
    """Topics whose records keep the producer's timestamp; without Debezium's, which other tests read."""
    topics = topic_names()
    topics = topics.model_copy(update={"profiles": f"{topics.transactions}-profiles"})
    stack_topics.create(stack.bootstrap_servers, topics, replay=True)
    return topics


def read(bootstrap_servers: str, topic: str) -> list[Message]:
    """All records of a topic, partition by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test-simulator"})
    try:
        messages: list[Message] = []
        for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
            low, high = topic_reader.offsets(consumer, TopicPartition(topic, number))
            consumer.assign([TopicPartition(topic, number, low)])
            end, position, deadline = high, low, time.monotonic() + 60
            while position < end:
                assert time.monotonic() < deadline, f"{topic} stopped at {position} of {end}"
                for message in consumer.consume(10_000, timeout=1):
                    assert message.error() is None
                    messages.append(message)
                    position = message.offset() + 1
        return messages
    finally:
        consumer.close()


def by_key(pairs: Iterator[tuple[bytes, bytes | None]]) -> dict[bytes, list[bytes | None]]:
    """Values by key, in order."""
    result: dict[bytes, list[bytes | None]] = {}
    for key, value in pairs:
        result.setdefault(key, []).append(value)
    return result


def test_every_record_arrives_as_it_was_encoded_in_order_of_its_card(
    stack: Endpoints, names: Topics, world: World
) -> None:
    stream = Stream(world, 5_000.0, int(time.time() * 1_000), fraud=FraudMix(share=0.05), disturbances=HEAVY)
    labels = Chargebacks(1, delay_ms=500)
    brokers = Address(stack.bootstrap_servers)
    destination.check(brokers, [names.transactions, names.chargebacks])
    sent = Sender(brokers).send(
        timeline(stream.blocks(events=20_000), labels, names, drain=True), Pace.at_once()
    )
    wanted = [pair for batch in stream.blocks(events=20_000) for pair in zip(*batch.encode(), strict=True)]
    records = read(stack.bootstrap_servers, names.transactions)
    assert sent[names.transactions] == len(records) == 20_000
    assert by_key((m.key(), m.value()) for m in records) == by_key(iter(wanted))
    assert sent[names.chargebacks] == len(read(stack.bootstrap_servers, names.chargebacks)) > 300


def test_live_records_arrive_at_their_time(stack: Endpoints, names: Topics, world: World) -> None:
    start_ms = int(time.time() * 1_000)
    stream = Stream(world, 1_000.0, start_ms, disturbances=Disturbances.none())
    Sender(Address(stack.bootstrap_servers)).send(
        timeline(stream.blocks(until_ms=start_ms + 4_000), None, names, drain=False)
    )
    records = read(stack.bootstrap_servers, names.transactions)
    lags = np.array([m.timestamp()[1] - orjson.loads(m.value())["event_time"] for m in records])
    assert len(records) == pytest.approx(4_000, rel=0.05)
    assert lags.min() >= 0
    # generous: other tests may keep the machine busy
    assert np.median(lags) < 500


def test_a_full_queue_slows_the_feed_down_and_loses_nothing(
    stack: Endpoints, names: Topics, world: World
) -> None:
    sender = Sender(Address(stack.bootstrap_servers, {"queue.buffering.max.messages": "50"}))
    stream = Stream(world, 500.0, 0)
    sent = sender.send(timeline(stream.blocks(events=5_000), None, names, drain=False), Pace.at_once())
    assert sent[names.transactions] == len(read(stack.bootstrap_servers, names.transactions)) == 5_000


def test_a_feed_with_a_transactional_id_is_seen_whole_or_not_at_all(
    stack: Endpoints, names: Topics, world: World, wait_for: Callable[..., object]
) -> None:
    readers = [
        Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": "test", "isolation.level": level})
        for level in ("read_uncommitted", "read_committed")
    ]
    partitions = [TopicPartition(names.transactions, number) for number in (0, 1)]

    def ends() -> list[int]:
        return [sum(topic_reader.offsets(reader, p)[1] for p in partitions) for reader in readers]

    result = []

    def observed() -> Iterator[Records]:
        for part in timeline(Stream(world, 500.0, 0).blocks(events=20_000), None, names, drain=False):
            yield part
            result.append(ends())

    brokers = Address(stack.bootstrap_servers, {"transactional.id": names.transactions})
    Sender(brokers).send(observed(), Pace.at_once())
    there, committed = zip(*result, strict=True)
    assert max(there) > 1_000
    assert max(committed) == 0
    marks = len(partitions)  # transaction markers, written after the commit is acknowledged
    wait_for(lambda: ends() == [20_000 + marks] * 2, what="the transaction markers")
    for reader in readers:
        reader.close()


def test_a_stop_from_another_thread_flushes_and_returns(
    stack: Endpoints, names: Topics, world: World, wait_for: Callable[..., object]
) -> None:
    feed = Sender(Address(stack.bootstrap_servers))
    stream = Stream(world, 500.0, int(time.time() * 1_000))
    thread = threading.Thread(target=feed.send, args=[timeline(stream.blocks(), None, names, drain=False)])
    thread.start()
    wait_for(lambda: feed.sent.total() > 100, what="the feed to start")
    feed.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert len(read(stack.bootstrap_servers, names.transactions)) == feed.sent[names.transactions]


def refusal_of(action: Callable[[], object]) -> str:
    """The error's text; '' if none comes yet: a broker acknowledges a setting before it applies it."""
    try:
        action()
    except SendError as error:
        return str(error)
    return ""


def test_a_record_that_the_broker_refuses_ends_the_feed(
    stack: Endpoints, names: Topics, world: World, wait_for: Callable[..., object]
) -> None:
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, names.transactions, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(timeout=30)

    def feed() -> None:
        records = timeline(Stream(world, 500.0, 0).blocks(events=1_000), None, names, drain=False)
        Sender(Address(stack.bootstrap_servers)).send(records, Pace.at_once())

    refusal = wait_for(lambda: refusal_of(feed), what="the refusal")
    assert "was not delivered" in str(refusal)


def test_missing_topics_and_missing_brokers_are_named(
    stack: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "ANSWER_S", 3.0)
    with pytest.raises(SendError, match="topic nowhere does not exist"):
        destination.check(Address(stack.bootstrap_servers), ["nowhere"])
    with pytest.raises(SendError, match=r"no Kafka at 127\.0\.0\.1:1 "):
        destination.check(Address("127.0.0.1:1"), ["transactions"])


def test_a_replay_keeps_the_files_times_and_order(stack: Endpoints, archive: Topics, tmp_path: Path) -> None:
    days = np.datetime64("2018-04-01", "ms") + np.arange(0, 20 * DAY_MS, 100_000)
    n = len(days)
    columns = {
        "TRANSACTION_ID": np.arange(n),
        "TX_DATETIME": days,
        "CUSTOMER_ID": np.arange(n) % 50,
        "TERMINAL_ID": np.arange(n) % 70,
        "TX_AMOUNT": np.round(np.arange(n) / 7, 2),
        "TX_FRAUD": (np.arange(n) % 100 == 0).astype(np.int64),
    }
    pq.write_table(pa.table(columns), tmp_path / "h.parquet")
    source = Replay(tmp_path / "h.parquet")
    brokers = Address(stack.bootstrap_servers)
    destination.check(brokers, [archive.transactions, archive.chargebacks], source.first_ms)
    sent = Sender(brokers, stamped=True).send(
        timeline(source.batches(), Chargebacks(), archive, drain=True), Pace.at_once()
    )
    records = read(stack.bootstrap_servers, archive.transactions)
    assert sent[archive.transactions] == len(records) == n
    for partition in (0, 1):
        times = [m.timestamp()[1] for m in records if m.partition() == partition]
        assert times == sorted(times)
        assert times
    assert all(orjson.loads(m.value())["event_time"] == m.timestamp()[1] for m in records)
    labels = read(stack.bootstrap_servers, archive.chargebacks)
    assert len(labels) == columns["TX_FRAUD"].sum()
    reports = [orjson.loads(m.value()) for m in labels]
    assert all(r["reported_at"] == m.timestamp()[1] for r, m in zip(reports, labels, strict=True))
    assert all(r["reported_at"] == r["event_time"] + 7 * DAY_MS for r in reports)


def test_a_replay_needs_topics_with_producer_timestamps(
    stack: Endpoints, names: Topics, archive: Topics, wait_for: Callable[..., object]
) -> None:
    brokers = Address(stack.bootstrap_servers)
    with pytest.raises(SendError, match="stamped by the broker"):
        destination.check(brokers, [names.transactions], int(time.time() * 1_000))
    entry = ConfigEntry("retention.ms", "604800000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, archive.transactions, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(timeout=30)
    old = int(datetime(2018, 4, 1).timestamp() * 1_000)
    check = partial(destination.check, brokers, [archive.transactions], old)
    refusal = wait_for(lambda: refusal_of(check), what="the refusal")
    assert "would delete the replay's oldest records" in str(refusal)
    destination.check(brokers, [archive.transactions], int(time.time() * 1_000))


@pytest.fixture
def database(stack: Endpoints) -> Iterator[psycopg.Connection]:
    """The bank's database without the simulated cards of other tests."""
    with psycopg.connect(stack.postgres_dsn, autocommit=True) as connection:
        connection.execute("delete from card_profiles where card_id like 'card-%'")
        yield connection
        connection.execute("delete from card_profiles where card_id like 'card-%'")


def stored(database: psycopg.Connection) -> list[tuple[object, ...]]:
    return database.execute(
        "select card_id, status, home_country, currency, credit_limit::float8, risk_tier, "
        "opened_on - '1970-01-01'::date from card_profiles where card_id like 'card-%' order by card_id"
    ).fetchall()


def test_profiles_are_loaded_and_restored(
    stack: Endpoints, database: psycopg.Connection, world: World
) -> None:
    loaded = profiles.load(stack.postgres_dsn, world)
    wanted = profiles.profiles(world, np.flatnonzero(world.cards.has_profile)).to_pylist()
    assert loaded.rows == loaded.written == len(wanted)
    assert stored(database) == [tuple(row.values()) for row in wanted]
    database.execute("update card_profiles set status = 'blocked' where card_id = 'card-00000001'")
    database.execute("delete from card_profiles where card_id = 'card-00000002'")
    assert profiles.load(stack.postgres_dsn, world).written == 2
    assert stored(database) == [tuple(row.values()) for row in wanted]


def test_generated_changes_reach_postgres_in_their_order(
    stack: Endpoints, database: psycopg.Connection, world: World, wait_for: Callable[..., object]
) -> None:
    profiles.load(stack.postgres_dsn, world)
    expected = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in stored(database)}
    churn = ProfileChurn(world, 500.0, int(time.time() * 1_000), changes_per_s=200.0)
    feed = ProfileFeed(stack.postgres_dsn, churn)
    feed.start()
    wait_for(lambda: feed.applied >= 300, what="300 changes")
    feed.stop()
    # the same changes, generated again and applied to `expected`
    again = ProfileChurn(world, 500.0, churn.start_ms, changes_per_s=200.0)
    kinds = set()
    for change in itertools.islice(again.changes(), feed.applied):
        kinds.add(change.change)
        card = str(change.values["card_id"])
        if change.change is Change.DELETE:
            expected.pop(card, None)
        elif change.change is Change.INSERT:
            opened = (date.fromisoformat(str(change.values["opened_on"])) - date(1970, 1, 1)).days
            expected.setdefault(card, {**change.values, "opened_on": opened})
        elif card in expected:
            status = {Change.BLOCK: {"status": "blocked"}, Change.UNBLOCK: {"status": "active"}}
            expected[card] |= status.get(change.change, {}) | change.values
    assert kinds == set(Change)
    assert {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in stored(database)} == expected


def test_a_missing_database_is_named(world: World, wait_for: Callable[..., object]) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with pytest.raises(ProfileError, match="no Postgres"):
        profiles.load(nowhere, world)
    feed = ProfileFeed(nowhere, ProfileChurn(world, 500.0, 0))
    feed.start()

    def failed() -> bool:
        try:
            feed.check()
        except ProfileError:
            return True
        return False

    wait_for(failed, what="the thread to fail")
    with pytest.raises(ProfileError, match="no Postgres"):
        feed.stop()


def test_a_missing_table_is_named(stack: Endpoints, world: World) -> None:
    other = stack.postgres_dsn.rsplit("/", 1)[0] + "/postgres"
    with pytest.raises(ProfileError, match="card_profiles does not exist"):
        profiles.load(other, world)


def test_the_command_streams_until_ctrl_c_and_counts(
    stack: Endpoints, names: Topics, database: psycopg.Connection, wait_for: Callable[..., object]
) -> None:
    environment = os.environ | {
        "FRAUD_BOOTSTRAP_SERVERS": stack.bootstrap_servers,
        "FRAUD_POSTGRES_DSN": stack.postgres_dsn,
        "FRAUD_TOPICS__TRANSACTIONS": names.transactions,
        "FRAUD_TOPICS__CHARGEBACKS": names.chargebacks,
    }
    command = [*FRAUD, "simulate", "--cards", "2000", "--chargeback-delay", "1s"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        admin = Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": "test-simulator-count"})

        def arrived() -> int:
            return sum(end for _, end in topic_reader.bounds(admin, names.transactions).values())

        wait_for(lambda: arrived() > 1_000, deadline_s=60, what="a thousand transactions")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        admin.close()
    finally:
        process.kill()
    assert process.returncode == 0
    count = len(read(stack.bootstrap_servers, names.transactions))
    assert f"{names.transactions} {count:,}" in output
    assert "profile changes " in output
    assert "disturbed " in output


def test_records_of_one_millisecond_keep_their_order(stack: Endpoints, names: Topics) -> None:
    values: list[bytes | None] = [str(i).encode() for i in range(5_000)]
    records = Records(names.transactions, np.zeros(5_000, dtype=np.int64), [b"one-card"] * 5_000, values)
    Sender(Address(stack.bootstrap_servers)).send([records], Pace.at_once())
    assert [m.value() for m in read(stack.bootstrap_servers, names.transactions)] == values
