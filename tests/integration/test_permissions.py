"""Missing permissions: what the brokers refuse is named; those of replays suffice."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from harness import settings_of_nowhere
from harness.writer_bench import WriterBench

from deploy.local import topics as broker
from deploy.local.stack import Endpoints
from deploy.replay import inputs
from deploy.replay.comparison import labelled
from deploy.replay.dropping import drop
from deploy.replay.plan import gather
from deploy.replay.record import Replay, file_of
from deploy.replay.rollout import live_line
from deploy.replay.running import LiveJob
from deploy.replay.switching import writers
from feature_store.state.journal import Meta
from loadtests.audit.topic_log import TopicLog
from loadtests.faults.acls import grant
from loadtests.faults.installation import Installation
from models.policy import Policy
from models.registry import ModelRef
from streaming_job.contracts.topic import Component, Operation
from streaming_job.contracts.topics import Topics
from streaming_job.facts.group_facts import AUTHOR
from streaming_job.group.opening import Opening
from streaming_job.group.rules import Rules, limits_of
from streaming_job.log import clients
from streaming_job.log.clients import Address
from streaming_job.log.follow import Follower
from streaming_job.log.partitioner import KeyGroups
from streaming_job.permissions import Permission, Resource, needed
from streaming_job.progress.last_record import FACTS_COMMIT
from streaming_job.runtime.preconditions import require_inputs
from streaming_job.settings import JobSettings
from streaming_job.takeover.handover import newest_records
from streaming_job.takeover.inherited_facts import require_stopped
from streaming_job.transaction.producer import SinkError

pytestmark = pytest.mark.integration

MODEL = ModelRef("card-fraud", "2", "models:/card-fraud/2", "ab" * 32, ("amount:1",))


@pytest.mark.parametrize(
    ("resource", "name"),
    [(Resource.GROUP, "Group"), (Resource.TRANSACTIONAL_ID, "Transactional Id")],
)
def test_a_missing_permission_of_a_key_group_is_named(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path, resource: Resource, name: str
) -> None:
    """Permissions on topics are not tested here: `runtime.preconditions` checks them before the start."""
    assert stack.guarded is not None
    servers, client = stack.guarded
    bench = WriterBench(stack, topic_names(), tmp_path, bootstrap_servers=servers, kafka=client)
    job = bench.settings.job_id

    def is_lacking(permission: Permission) -> bool:
        return permission.resource is resource and permission.name in (job, f"{job}-0")

    permissions = needed(Component.JOB, bench.settings)
    allowed = [permission for permission in permissions if not is_lacking(permission)]
    grant(stack.bootstrap_servers, Component.JOB, allowed)
    try:
        with pytest.raises(SinkError) as refusal:
            bench.writer()
    finally:
        bench.close()
    assert f"{name} authorization failed" in str(refusal.value)
    assert "`fraud job permissions` prints what the job needs" in str(refusal.value)


def test_a_reader_without_permission_for_its_group_does_not_wait_in_silence(stack: Endpoints) -> None:
    assert stack.guarded is not None
    with closing(clients.reader(Address(*stack.guarded), "not-permitted")) as reader:
        follower = Follower(reader, [TopicPartition("no-such-topic", 0, 0)])

        def poll(deadline: float) -> None:
            while time.monotonic() < deadline:
                follower.poll()

        with pytest.raises(KafkaException, match="Group authorization failed"):
            poll(time.monotonic() + 60)


def test_a_missing_permission_to_see_settings_of_topics_is_a_warning(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert stack.guarded is not None
    servers, client = stack.guarded
    installed = Installation(stack, topic_names(), tmp_path)
    installed.roll_out()
    settings = installed.settings.model_copy(update={"bootstrap_servers": servers, "kafka": client})
    permissions = list(needed(Component.JOB, settings))
    missing = "the job has no permission DescribeConfigs on these topics; `fraud job permissions` prints"

    def without(operation: Operation) -> list[Permission]:
        return [
            replace(permission, operations=tuple(o for o in permission.operations if o is not operation))
            for permission in permissions
        ]

    grant(stack.bootstrap_servers, Component.JOB, without(Operation.DESCRIBE_CONFIGS))
    require_inputs(settings)
    assert settings.topics.dead_letters in caplog.text
    assert missing in caplog.text
    caplog.clear()
    grant(stack.bootstrap_servers, Component.JOB, permissions)
    require_inputs(settings)
    assert missing not in caplog.text


def of_a_guarded_job(stack: Endpoints, topics: Topics, user: Component, **given: Any) -> JobSettings:
    """Create a job's topics; return its settings for a user on the broker that checks permissions."""
    assert stack.guarded is not None
    servers, kafka = stack.guarded
    broker.create(stack.bootstrap_servers, topics)
    return settings_of_nowhere.settings(
        job_id=f"job-{topics.transactions}", topics=topics, bootstrap_servers=servers,
        kafka={**kafka, "sasl.username": user.value}, **given,
    )  # fmt: skip


def test_a_replay_needs_no_other_permissions_until_it_is_switched_to(
    stack: Endpoints, topic_names: Callable[[], Topics], tmp_path: Path
) -> None:
    """All that its commands do on the brokers, but the second job (test_replay_parts has its permissions)."""
    topics = topic_names()
    live = of_a_guarded_job(stack, topics, Component.REPLAY, work_dir=tmp_path)
    grant(stack.bootstrap_servers, Component.REPLAY, needed(Component.REPLAY, live))
    rollout = {"model": asdict(MODEL), "policy": asdict(Policy(0.5, 6)), "created_at": 5}
    replay = Replay(
        "better", live.job_id, str(tmp_path / "none"), 2, topics.model_rollouts, 1, {},
        rollout=json.loads(json.dumps(rollout)), file=file_of(tmp_path, "better"),
    ).saved()  # fmt: skip
    own = [getattr(replay.topics(topics), field) for field in replay.own_fields]

    assert gather(live, replay).ends == {0: 0, 1: 0}
    inputs.create(live, replay)
    inputs.create(live, replay)
    assert inputs.foreign(live, replay) == {replay.topics(topics).model_rollouts: 2}
    assert live_line(live).champions == ()
    with closing(LiveJob(live, TopicLog(live.bootstrap_servers, live.kafka))) as watched:
        assert (watched.behind, watched.p99_s(0.0)) == (0, 0.0)
    assert labelled.read(live) == {}
    assert newest_records(replay.settings(live)) == {}
    assert writers(live) == ("", "")

    deleted: list[str] = []
    drop(live, replay, ends_way_back=False, wrote=deleted.append)
    assert {f"topic {name}" for name in own} <= {*deleted}
    assert topics.fraud_alerts in clients.admin(Address(stack.bootstrap_servers)).list_topics().topics


def test_a_job_that_continues_the_facts_of_a_replay_may_see_whether_it_goes_on(
    stack: Endpoints, topic_names: Callable[[], Topics]
) -> None:
    topics = topic_names()
    job = of_a_guarded_job(stack, topics, Component.JOB, merchant_facts=True)
    grant(stack.bootstrap_servers, Component.JOB, needed(Component.JOB, job))
    rules = Rules(topics, KeyGroups(job.partitioner, 2, 1), limits_of(job), lambda _: pytest.fail("no model"))
    heir = Opening(job, rules, 0, "query", "instance", takes_over=True)
    require_stopped(heir, Meta(extra={AUTHOR: f"{job.job_id}-replay-better", FACTS_COMMIT: 0}))
