"""The embedded stack with real servers: the stack of the test session, and a second one, to kill."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from thoroughness import only_thorough

from deploy.local import health, processes, topics
from deploy.local import stack as embedded
from deploy.local.errors import StackError
from deploy.local.launch import FRAUD
from deploy.local.ports import HOST, Ports
from deploy.local.processes import running
from deploy.local.stack import Endpoints
from deploy.local.state import load
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.record import (
    MAX_CARRIED,
    MAX_DETAIL,
    MAX_LETTER,
    MAX_RECORD_KEY,
    DeadLetter,
)
from streaming_job.log import topic_reader
from streaming_job.transaction.producer import MAX_MESSAGE_BYTES

pytestmark = pytest.mark.integration

PROFILES = Topics().profiles


class Reader:
    """Reads a topic from its beginning and keeps all records."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "test-stack",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        partitions = self.consumer.list_topics(topic, timeout=20).topics[topic].partitions
        self.consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        self.records: list[tuple[Any, Any]] = []
        self.errors: list[str] = []

    def __str__(self) -> str:
        """Describe how far it has read, for a test that waits in vain."""
        partitions = self.consumer.assignment()
        ends = {
            f"{each.topic}-{each.partition}": topic_reader.offsets(self.consumer, each) for each in partitions
        }
        positions = [each.offset for each in self.consumer.position(partitions)]
        return f"{len(self.records)} records, stable ends {ends}, positions {positions}, errors {self.errors}"

    def has_read(self, wanted: Callable[[Any, Any], bool]) -> bool:
        """Read on briefly; return whether `wanted` accepts key and value of any record read so far."""
        for message in self.consumer.consume(1000, timeout=0.1):
            if message.error() is None:
                self.records.append((decoded(message.key()), decoded(message.value())))
            else:
                assert message.error().code() != KafkaError.UNKNOWN_TOPIC_OR_PART, message.error()
                self.errors.append(str(message.error()))
        return any(wanted(key, value) for key, value in self.records)


def decoded(raw: bytes | None) -> Any:
    return None if raw is None else json.loads(raw)


def change(endpoints: Endpoints, statement: str, *values: object) -> None:
    with psycopg.connect(endpoints.postgres_dsn) as connection:
        connection.execute(statement, values)


def insert_card(endpoints: Endpoints, card: str) -> None:
    change(
        endpoints,
        "INSERT INTO card_profiles (card_id, home_country, currency, credit_limit, opened_on) "
        "VALUES (%s, 'DE', 'EUR', 1500.50, '2020-01-02')",
        card,
    )


def arrival_of(operation: str, card: str) -> Callable[[Any, Any], bool]:
    return lambda key, value: bool(key == {"card_id": card} and value and value["op"] == operation)


def test_topics_have_the_settings_of_the_contract(stack: Endpoints) -> None:
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    topics = client.list_topics(timeout=20).topics
    assert {name: len(topics[name].partitions) for name in Topics().configs()} == Topics().partitions(2)
    for name, expected in Topics().configs().items():
        (settings,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        assert {key: settings.result(20)[key].value for key in expected} == expected, name


def test_a_replay_switches_the_topic_to_producer_timestamps_and_back(
    stack: Endpoints, topic_names: Callable[[], Topics]
) -> None:
    names = topic_names()
    names = names.model_copy(update={"profiles": f"{names.transactions}-profiles"})
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})

    def setting(topic: str, name: str) -> str:
        (settings,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return str(settings.result(20)[name].value)

    def kinds() -> tuple[str, str]:
        return (
            setting(names.transactions, "message.timestamp.type"),
            setting(names.profiles, "cleanup.policy"),
        )

    # an archive's profiles are older than min.compaction.lag.ms: compaction would keep only the newest
    archive, live = ("CreateTime", "delete"), ("LogAppendTime", "compact")
    for replay, expected in ((True, archive), (False, live), (True, archive)):
        topics.create(stack.bootstrap_servers, names, replay=replay)
        assert kinds() == expected


@pytest.mark.parametrize("alter", [False, True])
def test_a_topic_of_which_the_broker_does_not_know_yet_counts_as_existing(
    stack: Endpoints, topic_names: Callable[[], Topics], monkeypatch: pytest.MonkeyPatch, alter: bool
) -> None:
    names = topic_names()
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    small = {"retention.ms": "86400000"}
    topic = NewTopic(names.model_rollouts, 1, 1, config=small)
    client.create_topics([topic])[names.model_rollouts].result(20)

    class Behind(AdminClient):
        """Answers the first question for topics as a broker that is behind its controller does."""

        answers = 0

        def list_topics(self, *args: Any, **options: Any) -> Any:
            answer = super().list_topics(*args, **options)
            self.answers += 1
            if self.answers == 1:
                answer.topics.pop(names.model_rollouts, None)
            return answer

    monkeypatch.setattr(topics, "admin", lambda servers, _kafka: Behind({"bootstrap.servers": servers}))
    differences = topics.create(stack.bootstrap_servers, names, alter=alter)
    named = [line for line in differences if line.startswith(f"{names.model_rollouts} has retention.ms=")]
    assert bool(named) is not alter
    (actual,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, names.model_rollouts)]).values()
    assert actual.result(20)["retention.ms"].value == ("-1" if alter else "86400000")


def test_existing_topics_are_compared_and_not_changed(
    stack: Endpoints, topic_names: Callable[[], Topics]
) -> None:
    # another test's replay may have changed the profiles' topic, which all share
    names, others = (
        result.model_copy(update={"profiles": f"{result.transactions}-profiles"})
        for result in (topic_names(), topic_names())
    )
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    config = {"max.message.bytes": "5000000", "retention.ms": "7776000000", "cleanup.policy": "compact"}
    client.create_topics([NewTopic(names.job_progress, 3, 1, config=config)])[names.job_progress].result(20)
    small = {"retention.ms": "86400000"}
    client.create_topics([NewTopic(names.model_rollouts, 2, 1, config=small)])[names.model_rollouts].result(
        20
    )
    differences = topics.create(stack.bootstrap_servers, names, alter=False)
    alter = "kafka-configs.sh --alter --entity-type topics --entity-name"
    assert differences == [
        f"{names.model_rollouts} has message.timestamp.type=CreateTime, the job wants LogAppendTime: "
        f"{alter} {names.model_rollouts} --add-config message.timestamp.type=LogAppendTime",
        f"{names.model_rollouts} has retention.bytes=4294967296, the job wants -1: "
        f"{alter} {names.model_rollouts} --add-config retention.bytes=-1",
        f"{names.model_rollouts} has retention.ms=86400000, the job wants -1: "
        f"{alter} {names.model_rollouts} --add-config retention.ms=-1",
        f"{names.model_rollouts} has 2 partitions, not 1: create it anew: rollout events are ordered "
        "only within one partition",
        f"{names.job_progress} has cleanup.policy=compact, the job wants delete: "
        f"{alter} {names.job_progress} --add-config cleanup.policy=delete",
        f"{names.job_progress} has retention.bytes=4294967296, the job wants -1: "
        f"{alter} {names.job_progress} --add-config retention.bytes=-1",
    ]
    (actual,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, names.job_progress)]).values()
    assert {name: actual.result(20)[name].value for name in config} == config
    assert names.fraud_alerts in client.list_topics(timeout=20).topics
    assert topics.create(stack.bootstrap_servers, others, alter=False) == []
    again = topics.create(stack.bootstrap_servers, others, alter=False, partitions=3, replication=3)
    assert [line.split(":")[0] for line in again if line.startswith(f"{others.transactions} ")] == [
        f"{others.transactions} has min.insync.replicas=1, the job wants at least 2",
        f"{others.transactions} has 2 partitions, not 3",
        f"{others.transactions} has 1 replicas, not 3",
    ]


@pytest.mark.parametrize("limit", [{}, {"message.max.bytes": MAX_MESSAGE_BYTES}], ids=["default", "jobs"])
def test_largest_dead_letter_fits_with_any_client(
    stack: Endpoints,
    topic_names: Callable[[], Topics],
    wait_for: Callable[..., object],
    limit: dict[str, Any],
) -> None:
    """With librdkafka's limit of a message, and with the job's."""
    names = topic_names()
    topics.create(stack.bootstrap_servers, names)
    key = b"k" * MAX_RECORD_KEY
    value = b"v" * (MAX_CARRIED - MAX_RECORD_KEY)
    reason, detail = Reason.RECORD_TOO_LARGE, "\N{GRINNING FACE}" * MAX_DETAIL
    letter = DeadLetter(names.transactions, 1, 2**60, 2**60, key, value, reason, detail)
    encoded = letter.encode()
    assert len(key) + len(encoded) < MAX_LETTER
    settings = {"bootstrap.servers": stack.bootstrap_servers, "transactional.id": names.dead_letters}
    producer = Producer({**settings, **limit})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(10):  # no flush in between: the client forms the batches
        producer.produce(names.dead_letters, encoded, json.dumps(key.decode()))
    producer.commit_transaction(30)
    reader = Reader(stack.bootstrap_servers, names.dead_letters)
    try:
        wait_for(lambda: reader.has_read(lambda *_: True) and len(reader.records) >= 10, what="ten letters")
    except AssertionError as fault:
        raise AssertionError(f"{fault}; {reader}") from fault
    assert len(reader.records) == 10
    assert all(result == json.loads(encoded) for _, result in reader.records)


def test_debezium_sends_heartbeats_while_nothing_changes(
    stack: Endpoints, wait_for: Callable[..., object]
) -> None:
    topic = Topics().heartbeats
    client = Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": "looks"})
    wait_for(lambda: topic in client.list_topics(timeout=20).topics, deadline_s=60, what="heartbeats' topic")
    end = lambda: topic_reader.offsets(client, TopicPartition(topic, 0))[1]  # noqa: E731
    before = end()
    wait_for(lambda: end() > before, deadline_s=60, what="a heartbeat")
    client.close()


def test_insert_update_and_delete_arrive_in_order(stack: Endpoints, wait_for: Callable[..., object]) -> None:
    card = "card-in-order"
    insert_card(stack, card)
    change(stack, "UPDATE card_profiles SET status = 'blocked' WHERE card_id = %s", card)
    change(stack, "DELETE FROM card_profiles WHERE card_id = %s", card)
    reader = Reader(stack.bootstrap_servers, PROFILES)
    wait_for(lambda: reader.has_read(lambda key, value: key == {"card_id": card} and value is None))
    values = [value for key, value in reader.records if key == {"card_id": card}]
    assert [value and value["op"] for value in values] == ["c", "u", "d", None]
    for value in values[:2]:
        validate(Contract.PROFILE, value["after"])
    assert values[0]["after"] == {
        "card_id": card,
        "status": "active",
        "home_country": "DE",
        "currency": "EUR",
        "credit_limit": 1500.5,
        "risk_tier": 0,
        "opened_on": 18263,
    }
    assert values[1]["after"]["status"] == "blocked"
    assert values[2]["before"]["card_id"] == card


def test_the_connectors_user_cannot_run_programs(stack: Endpoints) -> None:
    with (
        psycopg.connect(stack.postgres_dsn) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("COPY card_profiles TO PROGRAM 'true'")


def test_a_second_up_keeps_running_servers(stack: Endpoints, stack_dir: Path) -> None:
    before = load(stack_dir)
    assert embedded.up(stack_dir) == stack
    assert load(stack_dir) == before
    assert {each.state for each in health.status(stack_dir)} == {"running"}
    health.check(stack_dir)


def test_variables_of_another_postgres_are_ignored(stack: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PGHOSTADDR", "203.0.113.1"), ("PGHOST", "elsewhere"), ("PGSSLMODE", "verify-full")):
        monkeypatch.setenv(name, value)
    with psycopg.connect(stack.postgres_dsn, connect_timeout=5) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_status_shows_memory_within_the_budget(stack: Endpoints, stack_dir: Path) -> None:
    memory = {each.service: each.memory_bytes >> 20 for each in health.status(stack_dir)}
    assert 0 < memory["postgres"] < 200
    assert 0 < memory["kafka"] < 900
    assert 0 < memory["connect"] < 600


def test_a_stack_on_another_directory_is_another_stack(
    stack: Endpoints, stack_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(StackError, match=r"port .* for kafka is in use"):
        embedded.up(tmp_path, ports=Ports(kafka=load(stack_dir).ports["kafka"]), services=["kafka"])
    assert embedded.down(tmp_path) == []
    health.check(stack_dir)


def heed_ctrl_c() -> None:
    """Restore the default handling of SIGINT, which background children of a shell ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_port_taken_between_choice_and_start_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[socket.socket] = []
    choose = embedded.choose

    def choose_and_lose(*arguments: Any) -> dict[str, int]:
        chosen = choose(*arguments)
        if not others:
            others.append(socket.create_server((HOST, chosen["postgres"])))
        return chosen

    monkeypatch.setattr(embedded, "choose", choose_and_lose)
    steps: list[str] = []
    try:
        embedded.up(tmp_path, services=["postgres"], progress=steps.append)
        taken = others[0].getsockname()[1]
        assert load(tmp_path).ports["postgres"] != taken
        assert f"another program took port {taken}: starting on another" in steps
    finally:
        embedded.down(tmp_path)
        others[0].close()


def test_ctrl_c_during_a_start_leaves_no_process(tmp_path: Path) -> None:
    command = [*FRAUD, "stack", "up", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_ctrl_c
    ) as starter:
        assert starter.stderr is not None
        while "starting kafka" not in starter.stderr.readline():
            assert starter.poll() is None
        starter.send_signal(signal.SIGINT)
        _, output = starter.communicate(timeout=120)
    assert starter.returncode != 0
    assert load(tmp_path).servers == {}, output
    assert not [marker for marker in embedded.MARKERS.values() if processes.find(marker(tmp_path))]


@pytest.fixture(scope="module")
def own_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of a stack to kill; the tests below share it, so each finds the data of those before it."""
    directory = tmp_path_factory.mktemp("own")
    yield directory
    embedded.down(directory)


@pytest.mark.chaos
@only_thorough
def test_everything_killed_is_recovered_with_its_data(own_dir: Path, wait_for: Callable[..., object]) -> None:
    first = embedded.up(own_dir)
    insert_card(first, "before")
    reader = Reader(first.bootstrap_servers, PROFILES)
    wait_for(lambda: reader.has_read(arrival_of("c", "before")))
    for service in embedded.ALL:
        assert embedded.kill(own_dir, service)
    assert {each.state for each in health.status(own_dir)} == {"died"}
    with pytest.raises(StackError, match="ended unexpectedly"):
        health.check(own_dir)
    assert embedded.up(own_dir) == first
    insert_card(first, "after")
    again = Reader(first.bootstrap_servers, PROFILES)
    wait_for(lambda: again.has_read(arrival_of("c", "after")))
    assert again.has_read(arrival_of("c", "before"))


@pytest.mark.chaos
@only_thorough
def test_changes_made_while_connect_is_dead_arrive_after_it(
    own_dir: Path, wait_for: Callable[..., object]
) -> None:
    endpoints = embedded.up(own_dir)
    embedded.kill(own_dir, "connect")
    insert_card(endpoints, "meanwhile")
    embedded.up(own_dir)
    reader = Reader(endpoints.bootstrap_servers, PROFILES)
    wait_for(lambda: reader.has_read(arrival_of("c", "meanwhile")))


@pytest.mark.chaos
@only_thorough
def test_debezium_reconnects_to_a_restarted_postgres(own_dir: Path, wait_for: Callable[..., object]) -> None:
    endpoints = embedded.up(own_dir)
    embedded.kill(own_dir, "postgres")
    embedded.up(own_dir, services=["postgres"])  # with Connect, `up` would restart a failed connector
    insert_card(endpoints, "back")
    reader = Reader(endpoints.bootstrap_servers, PROFILES)
    wait_for(lambda: reader.has_read(arrival_of("c", "back")))


@pytest.mark.chaos
def test_a_lost_record_of_a_running_stack_does_not_start_a_second_one(own_dir: Path) -> None:
    embedded.up(own_dir, services=["postgres"])
    orphan = load(own_dir).servers["postgres"]
    (own_dir / "stack.json").unlink()
    embedded.up(own_dir, services=["postgres"])
    assert running(orphan) is None
    assert load(own_dir).servers["postgres"].pid != orphan.pid


@only_thorough
def test_down_stops_all_servers_and_keeps_the_data(own_dir: Path) -> None:
    insert_card(embedded.up(own_dir), "kept")
    servers = load(own_dir).servers
    assert embedded.down(own_dir) == ["connect", "postgres", "kafka"]
    assert not any(running(server) for server in servers.values())
    assert {each.state for each in health.status(own_dir)} == {"stopped"}
    with pytest.raises(StackError, match="no stack runs"):
        embedded.endpoints(own_dir)
    again = embedded.up(own_dir, services=["postgres"])
    with psycopg.connect(again.postgres_dsn) as connection:
        assert ("kept",) in connection.execute("SELECT card_id FROM card_profiles").fetchall()
