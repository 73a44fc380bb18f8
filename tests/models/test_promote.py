"""`fraud models promote` against a real broker and registry."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from typer.testing import CliRunner

from deploy.local.stack import Endpoints
from feature_store import catalogue
from models import registry
from models.commands import app
from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type, installation, read
from models.rollouts.publishing import publish
from models.train import train
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('promote')}/mlflow.db"


def registered(uri: str, features: tuple[str, ...]) -> ModelRef:
    names = catalogue.feature_names()
    x = np.random.default_rng(0).normal(size=(500, len(names)))
    model = train(x, x[:, 0] > 1, iterations=5)
    return registry.register(model, features, x[:20], np.zeros(len(names)), uri)


@pytest.fixture
def topic(stack: Endpoints, topic_names: Callable[[], Topics]) -> str:
    """A rollout topic of our own, with the configuration of the real one in a replay."""
    names = topic_names()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    made = admin.create_topics(
        [NewTopic(names.model_rollouts, 1, 1, config=names.configs(replay=True)[names.model_rollouts])]
    )
    made[names.model_rollouts].result(30)
    return names.model_rollouts


def records(servers: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "promote-test", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, 10)
    consumer.close()
    return found


def test_promoting_a_model_writes_the_event_that_the_job_reads(
    stack: Endpoints, topic: str, uri: str
) -> None:
    ref = registered(uri, catalogue.IDENTITIES)
    before = time.time_ns() // 1_000_000
    where = ["--tracking-uri", uri, "--bootstrap-servers", stack.bootstrap_servers, "--topic", topic]
    arguments = ["promote", f"{ref.name}/{ref.version}", *where, "--threshold", "0.25", "--max-count-5m", "9"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.output.startswith(f"rolled out card-fraud/{ref.version} as card-fraud-{ref.version}-")
    found = records(stack.bootstrap_servers, topic, 2)
    proposed, promoted = (event for record in found for event in read(record.value() or b""))
    (challenger,) = proposed.challengers
    assert (challenger.model, challenger.policy) == (ref, Policy(0.25, 9))
    assert (proposed.type, promoted.type) == (Type.PROPOSED, Type.PROMOTED)
    assert {record.key() for record in found} == {proposed.rollout_id.encode()}
    for record in found:
        assert before <= proposed.created_at <= record.timestamp()[1] <= time.time_ns() // 1_000_000


def test_withdrawing_a_rollout_writes_the_event_that_the_job_reads(stack: Endpoints, topic: str) -> None:
    where = ["--bootstrap-servers", stack.bootstrap_servers, "--topic", topic]
    arguments = ["withdraw", "card-fraud-1-17", *where, "--reason", "too many alerts"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.output.startswith("withdrew card-fraud-1-17")
    CliRunner().invoke(app, [*arguments, "--from-the-beginning"], catch_exceptions=False)
    found = records(stack.bootstrap_servers, topic, 2)
    events = [event for record in found for event in read(record.value() or b"")]
    assert all(event.type is Type.WITHDRAWN for event in events)
    assert [event.rollout_id for event in events] == ["card-fraud-1-17"] * 2
    assert [event.from_the_beginning for event in events] == [False, True]
    assert {record.key() for record in found} == {b"card-fraud-1-17"}


def test_a_replay_sets_the_time_from_which_the_rollout_holds(stack: Endpoints, topic: str) -> None:
    ref = ModelRef("card-fraud", "1", "models:/card-fraud/1", "ab" * 32, ("amount:1",))
    publish(
        installation(ref, Policy(0.5, 6), "r1", "test", 1_000),
        stack.bootstrap_servers,
        topic,
        timestamp_ms=1_500_000_000_000,
    )
    for record in records(stack.bootstrap_servers, topic, 2):
        assert record.timestamp()[1] == 1_500_000_000_000


@pytest.mark.parametrize(
    ("model", "match"),
    [
        ("card-fraud/999", "registry failed"),
        ("nonsense", "no NAME/VERSION"),
        ("other features", "this release does not compute amount:9"),
    ],
)
def test_what_must_not_be_rolled_out_is_refused(
    stack: Endpoints, topic: str, uri: str, model: str, match: str
) -> None:
    if model == "other features":
        model = f"card-fraud/{registered(uri, ('amount:9', *catalogue.IDENTITIES[1:])).version}"
    where = ["--tracking-uri", uri, "--bootstrap-servers", stack.bootstrap_servers, "--topic", topic]
    done = CliRunner().invoke(app, ["promote", model, *where, "--threshold", "0.5"])
    assert isinstance(done.exception, ModelError)
    assert match in str(done.exception)
    servers = {"bootstrap.servers": stack.bootstrap_servers, "group.id": "promote-test"}
    assert Consumer(servers).get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 0)


def test_a_broker_that_is_not_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.rollouts.publishing.DELIVERY_TIMEOUT_S", 1.0)
    ref = ModelRef("card-fraud", "1", "models:/card-fraud/1", "ab" * 32, ("amount:1",))
    with pytest.raises(ModelError, match="was not written"):
        publish(installation(ref, Policy(0.5, 6), "r1", "test", 1_000), "127.0.0.1:1", "model-rollouts")
