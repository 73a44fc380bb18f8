"""The table of topics: what each row must say, and who takes it from there."""

import pytest
from harness import settings_of_nowhere

from streaming_job.contracts.topic import Component, Operation, Role, Topic, Without
from streaming_job.contracts.topics import TABLE, Topics
from streaming_job.permissions import needed

pytestmark = pytest.mark.unit
WRITTEN = {field: row for field, row in TABLE.items() if row.role in (Role.OUTPUT, Role.STATE, Role.PROGRESS)}


def allowed(component: Component, topic: str) -> set[Operation]:
    return {
        operation
        for permission in needed(component, settings_of_nowhere.settings())
        if permission.name == topic
        for operation in permission.operations
    }


@pytest.mark.parametrize("row", WRITTEN.values(), ids=WRITTEN)
def test_a_topic_that_the_job_writes_is_counted_digested_and_described_or_says_why_not(row: Topic) -> None:
    for said in (row.count, row.digest, row.contract):
        assert said
        if isinstance(said, Without):
            assert said != Without("the job does not write it"), "a reason of its own"


@pytest.mark.parametrize("field", WRITTEN)
def test_the_job_may_write_its_topics_and_the_audit_may_read_them(field: str) -> None:
    name = getattr(Topics(), field)
    assert Operation.WRITE in allowed(Component.JOB, name) or TABLE[field].of_facts
    assert Operation.READ in allowed(Component.AUDIT, name)


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_every_topic_is_retained_on_purpose(row: Topic) -> None:
    assert row.retention.reason
