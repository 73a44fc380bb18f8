"""Missing permissions: what the brokers refuse is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness.writer_bench import WriterBench

from deploy.local.stack import Endpoints
from loadtests.faults.acls import grant
from loadtests.faults.installation import Installation
from streaming_job.contracts.topic import Component, Operation
from streaming_job.contracts.topics import Topics
from streaming_job.permissions import Permission, Resource, needed
from streaming_job.runtime.preconditions import require_inputs
from streaming_job.transaction.producer import SinkError

pytestmark = pytest.mark.integration


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
