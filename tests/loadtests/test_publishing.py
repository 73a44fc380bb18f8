"""The writer of rollout events for demo, benchmarks and tests."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.local.stack import Endpoints
from loadtests.simulator.rollouts import publish
from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import installation
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(stack: Endpoints, topic_names: Callable[[], Topics]) -> str:
    """A rollout topic for one test, configured to replay an archive: the producer sets the timestamps."""
    names = topic_names()
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    result = admin.create_topics(
        [NewTopic(names.model_rollouts, 1, 1, config=names.configs(replay=True)[names.model_rollouts])]
    )
    result[names.model_rollouts].result(30)
    return names.model_rollouts


def records(servers: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "promote-test", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    result = consumer.consume(count, 10)
    consumer.close()
    return result


def test_a_replay_sets_the_time_from_which_the_rollout_decides(stack: Endpoints, topic: str) -> None:
    ref = ModelRef("card-fraud", "1", "models:/card-fraud/1", "ab" * 32, ("amount:1",))
    publish(
        installation(ref, Policy(0.5, 6), "r1", "test", 1_000),
        stack.bootstrap_servers,
        topic,
        timestamp_ms=1_500_000_000_000,
    )
    times = [record.timestamp()[1] for record in records(stack.bootstrap_servers, topic, 2)]
    assert times == [1_500_000_000_000] * 2


def test_a_missing_broker_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtests.simulator.rollouts.DELIVERY_TIMEOUT_S", 1.0)
    ref = ModelRef("card-fraud", "1", "models:/card-fraud/1", "ab" * 32, ("amount:1",))
    with pytest.raises(ModelError, match="is not known to be written"):
        publish(installation(ref, Policy(0.5, 6), "r1", "test", 1_000), "127.0.0.1:1", "model-rollouts")
