"""What an operator reads when something is not there: one line that says what to do, and an exit code."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from deploy.local.stack import Endpoints
from loadtests.faults.installation import Installation
from streaming_job.contracts.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_each_missing_thing_is_one_line_and_an_exit_code(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = Installation(stack, topic_names(), tmp_path_factory.mktemp("start-up"))
    assert stack.guarded is not None
    guarded, client = stack.guarded
    client = {**client, "sasl.password": "forgotten"}
    refused = "refuses the credentials or the protocol (*); correct FRAUD_KAFKA"
    expected = {
        "no rollout": (
            {},
            "error: no model has been rolled out; run `fraud models promote`, then start the job",
        ),
        "no broker": (
            {"bootstrap_servers": "127.0.0.1:9"},
            "error: no answer from Kafka at 127.0.0.1:9 (*); check address and brokers",
        ),
        "wrong credentials": (
            {"bootstrap_servers": guarded, "kafka": client},
            f"error: Kafka at {guarded} {refused}",
        ),
        "wrong protocol": ({"kafka": client}, f"error: Kafka at {stack.bootstrap_servers} {refused}"),
        "no topic": (
            {"topics": made.topics.model_copy(update={"chargebacks": "not-there"})},
            "error: topics are missing: not-there; create them, see docs/operations.md",
        ),
    }
    with ExitStack() as running:
        jobs = {name: running.enter_context(made.start(**changes)) for name, (changes, _) in expected.items()}
        for name, job in jobs.items():
            assert job.ended() == 1, name
            start, _, end = expected[name][1].partition("*")
            assert len(job.log.splitlines()) == 1, job.log
            assert job.error.startswith(start)
            assert job.error.endswith(end)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"driver_memory": "400m"}, "[INVALID_DRIVER_MEMORY] System memory "),
        ({"driver_java_options": "-XX:NewRatio=none"}, "Java ended, see its words above"),
    ],
)
def test_settings_that_spark_does_not_take_are_named(
    installed: Installation, setting: dict[str, str], words: str
) -> None:
    with installed.start(**setting) as job:
        assert job.ended() == 1
        assert job.error.startswith(f"error: Spark does not start: {words}")
        assert "correct FRAUD_MASTER, FRAUD_DRIVER_MEMORY, " in job.error
        assert "Traceback" not in job.log
