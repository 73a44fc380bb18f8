"""The permissions that job, sidecar and tools need on brokers with an authoriser."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from streaming_job.contracts.topic import Component, Operation
from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings

_OF_RETIRED = (Component.JOB, Component.AUDIT, Component.DEAD_LETTERS, Component.REPLAY)
"""Components that read the topics that the transactions have left."""


class Resource(StrEnum):
    """Kinds of resources, as options of `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class Permission:
    """A permission for some operations on one resource, or on all whose names begin with a prefix."""

    resource: Resource
    name: str
    operations: tuple[Operation, ...]
    is_prefix: bool = False

    def options(self) -> list[str]:
        """Return the options of `kafka-acls.sh --add`."""
        pattern = "prefixed" if self.is_prefix else "literal"
        operations = [word for operation in self.operations for word in ("--operation", operation.value)]
        return [f"--{self.resource.value}", self.name, "--resource-pattern-type", pattern, *operations]


def needed(component: Component, settings: JobSettings) -> Iterator[Permission]:
    """Yield the permissions of a component."""
    topics, job_id = settings.topics, settings.job_id
    yield from _topics(component, settings)
    match component:
        case Component.JOB:
            yield Permission(Resource.GROUP, job_id, (Operation.READ,))
            groups = range(settings.key_groups)
            yield from _ids(
                writes_as=[*(f"{job_id}-{group}" for group in groups), f"{job_id}-takeover"],
                describes=[f"{job_id}-start", f"{job_id}-bootstrap", f"{job_id}-takeover", "end-offsets"],
            )
            if settings.merchant_facts:
                # a job that continues the facts of a replay looks whether the replay goes on
                yield Permission(
                    Resource.GROUP, _of_second_jobs(job_id), (Operation.DESCRIBE,), is_prefix=True
                )
        case Component.SIDECAR:
            yield Permission(Resource.TOPIC, topics.heartbeats, (Operation.DESCRIBE,))
            yield from _of_rollouts(job_id)
            yield from _ids(describes=[job_id, f"{job_id}-sidecar", f"{job_id}-decisions"])
            yield _writing_labels(topics)
        case Component.ROLLOUTS:
            yield from _of_rollouts(job_id)
        case Component.LABELS:
            yield from _ids(describes=["fraud-labels"])
            yield _writing_labels(topics)
        case Component.SCHEMAS:
            yield from _ids(describes=["fraud-schemas"])
        case Component.DEAD_LETTERS:
            yield from _ids(writes_as=[f"{topics.dead_letters}-replay"], describes=["fraud-dead-letters"])
        case Component.AUDIT:
            # after a switch to a replay and the way back, its rollouts judge what it has decided
            yield Permission(
                Resource.TOPIC, f"{topics.model_rollouts}-replay-", (Operation.READ,), is_prefix=True
            )
            yield from _ids(describes=[job_id, "fraud-audit"])
        case Component.ARCHIVE:
            yield from _ids(describes=["end-offsets"])
        case Component.REPLAY:
            yield from _of_replays(settings)


def _topics(component: Component, settings: JobSettings) -> Iterator[Permission]:
    """Yield one permission for each topic that the component uses, sorted by name."""
    for name in settings.retired_transactions if component in _OF_RETIRED else ():
        yield Permission(Resource.TOPIC, name, (Operation.READ,))
    for name, row in sorted(settings.topics.rows(), key=lambda named: named[0]):
        allowed = row.operations(component, facts=settings.merchant_facts)
        if allowed:
            yield Permission(
                Resource.TOPIC, name, tuple(operation for operation in Operation if operation in allowed)
            )


def _of_replays(settings: JobSettings) -> Iterator[Permission]:
    """Yield permissions on what replays have for themselves, under any name, and those of their clients."""
    topics, job_id = settings.topics, settings.job_id
    own = [name for name, row in topics.rows() if row.is_written]
    operations = (
        Operation.READ,
        Operation.WRITE,
        Operation.DESCRIBE_CONFIGS,
        Operation.CREATE,
        Operation.DELETE,
    )
    for name in sorted([*own, topics.model_rollouts]):
        yield Permission(Resource.TOPIC, f"{name}-replay-", operations, is_prefix=True)
    second_jobs = _of_second_jobs(job_id)
    yield Permission(Resource.GROUP, second_jobs, (Operation.READ, Operation.DELETE), is_prefix=True)
    yield Permission(Resource.TRANSACTIONAL_ID, second_jobs, (Operation.WRITE,), is_prefix=True)
    clients = [job_id, f"{job_id}-rollouts", "end-offsets", "fraud-audit", "fraud-replay"]
    yield from _ids(describes=clients)


def _of_second_jobs(job_id: str) -> str:
    """Return the beginning of the ids of replays' jobs."""
    return f"{job_id}-replay-"


def _of_rollouts(job_id: str) -> Iterator[Permission]:
    return _ids(
        writes_as=[f"{job_id}-rollouts"],
        describes=[f"{job_id}-rollouts", f"{job_id}-audit", f"{job_id}-precision"],
    )


def _writing_labels(topics: Topics) -> Permission:
    # each writer has an id of its own (`labels.ledger`)
    prefix = f"fraud-labels-{topics.labels}-"
    return Permission(Resource.TRANSACTIONAL_ID, prefix, (Operation.WRITE,), is_prefix=True)


def _ids(writes_as: Collection[str] = (), describes: Collection[str] = ()) -> Iterator[Permission]:
    """Yield permissions on transactional ids and groups.

    Args:
        describes: groups. librdkafka finds the coordinator of each consumer's group, even if the consumer
            never joins it.
    """
    for name in writes_as:
        yield Permission(Resource.TRANSACTIONAL_ID, name, (Operation.WRITE,))
    for group in describes:
        yield Permission(Resource.GROUP, group, (Operation.DESCRIBE,))
