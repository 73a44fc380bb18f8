"""A start without its preconditions: one line with the remedy, and an exit code."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from thoroughness import THOROUGH

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from feature_store import spark_surroundings
from loadtests.faults.installation import Installation
from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import Partitioner
from streaming_job.runtime.checkpoint import FIXED
from streaming_job.runtime.partitioning import require_partitioner
from streaming_job.runtime.preconditions import StartUpError, require_inputs
from streaming_job.settings import Arrival

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
EVERY_DAY = ("no option of Java's",)
"""Contradictions with Spark or the log that every run tests; only thorough runs test the other ones."""


@pytest.fixture(scope="module")
def empty(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """An installation without a rollout."""
    return Installation(stack, topic_names(), tmp_path_factory.mktemp("start-up"))


def test_a_missing_precondition_gives_one_line_and_an_exit_code(empty: Installation) -> None:
    # this topic is missing, too, but that is no error: only tools and merchant facts need it
    with empty.start(topics=empty.topics.model_copy(update={"chargebacks": "not-there"})) as job:
        assert job.exit_code() == 1
        assert job.log == (
            "error: no model has been rolled out; run `fraud rollouts propose --promote`, then start the "
            "job\n"
        )


def test_each_missing_precondition_is_named_with_its_remedy(stack: Endpoints, empty: Installation) -> None:
    assert stack.guarded is not None
    guarded, client = stack.guarded
    client = {**client, "sasl.password": "forgotten"}
    missing = "topics are missing, or the job has no permission on them"
    refused = "refuses the credentials or the protocol (*); correct FRAUD_KAFKA"
    expected: dict[str, dict[str, object]] = {
        "no answer from Kafka at 127.0.0.1:9 (*); check address and brokers": {
            "bootstrap_servers": "127.0.0.1:9"
        },
        f"Kafka at {guarded} {refused}": {"bootstrap_servers": guarded, "kafka": client},
        f"Kafka at {stack.bootstrap_servers} {refused}": {"kafka": client},
        f"{missing}: not-there; create them, or grant it, see docs/operations.md": {
            "topics": empty.topics.model_copy(update={"dead_letters": "not-there"})
        },
    }

    def error(changes: dict[str, object]) -> str:
        with pytest.raises(StartUpError) as fault:
            require_inputs(empty.settings.model_copy(update=changes))
        return str(fault.value)

    with ThreadPoolExecutor() as pool:  # most of them wait for an answer until their time is over
        for message, actual in zip(expected, pool.map(error, expected.values()), strict=True):
            start, _, end = message.partition("*")
            assert actual.startswith(start)
            assert actual.endswith(end)


def test_topics_that_break_a_guarantee_are_refused_and_unwise_ones_named(
    installed: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    topics = installed.topics.model_copy(update={"profiles": f"{installed.topics.transactions}-own-profiles"})
    servers = installed.stack.bootstrap_servers
    changes = {"topics": topics, "bootstrap_servers": servers, "kafka": {}}
    settings = installed.settings.model_copy(update=changes)
    broker.create(servers, topics)
    require_inputs(settings)
    # the embedded brokers limit the size of topics, which a bank should not do
    assert f"{topics.transactions} has retention.bytes=" in caplog.text
    broker.create(servers, topics, replay=True)
    try:
        with pytest.raises(StartUpError, match="break guarantees of the job: ") as refusal:
            require_inputs(settings)
        for name in (topics.transactions, topics.profiles, topics.model_rollouts):
            assert f"{name} has message.timestamp.type=CreateTime, the job wants LogAppendTime" in str(
                refusal.value
            )
        require_inputs(settings.model_copy(update={"arrival": Arrival.CREATE}))
    finally:
        broker.create(servers, topics)


def test_records_in_the_partitions_of_another_partitioner_are_named(installed: Installation) -> None:
    installed.send(200)  # their partitions are chosen with murmur2
    require_partitioner(installed.settings, 2)
    with pytest.raises(StartUpError, match="200 where murmur2 does; set FRAUD_PARTITIONER=murmur2"):
        require_partitioner(installed.settings.model_copy(update={"partitioner": Partitioner.CRC32}), 2)


def test_a_contradiction_with_spark_or_the_log_is_named_with_its_remedy(installed: Installation) -> None:
    spark = "Spark does not start: "
    names = ["FRAUD_MASTER", "FRAUD_DRIVER_MEMORY", "FRAUD_DRIVER_JAVA_OPTIONS", *spark_surroundings.used()]
    correct = f"; correct {', '.join(names)} or FRAUD_SPARK"
    topic = installed.topics.transactions
    expected = {
        "too little memory": (
            {"driver_memory": "400m"},
            f"{spark}[INVALID_DRIVER_MEMORY] System memory *{correct}",
        ),
        "no option of Java's": (
            {"driver_java_options": "-XX:NewRatio=none"},
            f"{spark}the JVM exited; see its output above{correct}",
        ),
        "an object store whose jars are not there": (
            {"checkpoint": "abfss://box@account/checkpoint"},
            "FRAUD_CHECKPOINT: Spark cannot use abfss://box@account/checkpoint (*); give Spark the jars and "
            "credentials of that file system in FRAUD_SPARK, or use another location",
        ),
        "more key groups than partitions": (
            {"key_groups": 3},
            f"3 key groups cannot share 2 partitions of {topic}; set FRAUD_KEY_GROUPS=2 at most",
        ),
    }
    if not THOROUGH:
        expected = {name: expected[name] for name in EVERY_DAY}
    with ExitStack() as running:
        jobs = {
            name: running.enter_context(installed.start(**changes)) for name, (changes, _) in expected.items()
        }
        for name, job in jobs.items():
            assert job.exit_code() == 1, name
            start, _, end = f"error: {expected[name][1]}".partition("*")
            assert job.error.startswith(start)
            assert job.error.endswith(end)
            assert "Traceback" not in job.log
    # a refused start has stored no settings
    assert not Path(installed.settings.checkpoint, FIXED).exists()


def test_a_first_start_that_is_stopped_while_it_waits_for_profiles_is_still_to_come(
    installed: Installation, wait_for: Callable[..., object]
) -> None:
    """The next start has to wait, too: half of the profiles may be there by then."""
    topics = installed.topics.model_copy(update={"profiles": f"profiles-of-{installed.topics.transactions}"})
    broker.create(installed.stack.bootstrap_servers, topics)
    with installed.start(topics=topics, wait_for_snapshot_s=600) as job:
        waiting = "waiting for the end of Debezium's first snapshot"
        wait_for(lambda: waiting in job.log or not job.runs, deadline_s=300, what="the wait")
        assert job.terminate() == 0, job.log
        assert waiting in job.log
    checkpoint = Path(installed.settings.checkpoint)
    assert not (checkpoint / FIXED).exists()
    assert not (checkpoint / "offsets").exists()
