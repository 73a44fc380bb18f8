"""The permissions that job, sidecar and tools need on brokers with an authoriser."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from streaming_job.contracts.topics import Topics
from streaming_job.settings import JobSettings


class Resource(StrEnum):
    """Kinds of resources, as options of `kafka-acls.sh`."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """Operations, as `kafka-acls.sh` names them; READ and WRITE imply DESCRIBE."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


class Component(StrEnum):
    """Programs that connect to the brokers; each can have a principal of its own."""

    JOB = "job"
    SIDECAR = "sidecar"
    """Its permissions suffice for rollouts, labels and all guards."""
    ROLLOUTS = "rollouts"
    """`fraud rollouts`, which model owners run."""
    LABELS = "labels"
    DEAD_LETTERS = "dead-letters"
    AUDIT = "audit"
    """`fraud verify`."""


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
    """Yield the permissions of a component.

    Args:
        component: the component.
        settings: settings of the job that it belongs to.
    """
    topics, job_id = settings.topics, settings.job_id
    match component:
        case Component.JOB:
            yield from _of_job(settings)
        case Component.SIDECAR:
            yield from _of_rollouts(job_id, topics)
            yield from _topics(read={topics.transactions, topics.profiles}, describe={topics.heartbeats})
            yield from _ids(describes=[job_id, f"{job_id}-sidecar", f"{job_id}-decisions"])
            yield from _writing_labels(topics)
        case Component.ROLLOUTS:
            yield from _of_rollouts(job_id, topics)
        case Component.LABELS:
            yield from _topics(read={topics.labels, topics.chargebacks})
            yield from _ids(describes=["fraud-labels"])
            yield from _writing_labels(topics)
        case Component.DEAD_LETTERS:
            inputs = {topics.transactions, *topics.tables, topics.labels, topics.chargebacks}
            read = {*inputs, topics.dead_letters, topics.dead_letter_replays}
            yield from _topics(read=read, write={*inputs, topics.dead_letter_replays})
            yield from _ids(writes_as=[f"{topics.dead_letters}-replay"], describes=["fraud-dead-letters"])
        case Component.AUDIT:
            yield from _topics(read={*topics.job_topics, *topics.fact_tables})
            yield from _ids(describes=[job_id, "fraud-audit"])


def _of_job(settings: JobSettings) -> Iterator[Permission]:
    topics, job_id = settings.topics, settings.job_id
    write = {*topics.job_topics} - {topics.transactions, *topics.tables}
    yield from _topics(
        read={topics.transactions, topics.job_progress, *settings.tables},
        write=write | {topics.merchant_facts} if settings.merchant_facts else write,
        describe_configs={*topics.job_topics, *settings.tables},
    )
    yield Permission(Resource.GROUP, job_id, (Operation.READ,))
    yield from _ids(
        writes_as=[f"{job_id}-{group}" for group in range(settings.key_groups)],
        describes=[f"{job_id}-start", f"{job_id}-bootstrap", "end-offsets"],
    )


def _of_rollouts(job_id: str, topics: Topics) -> Iterator[Permission]:
    compared = {topics.fraud_alerts, topics.suppressed_alerts, topics.shadow_alerts}
    labels = {topics.labels, topics.chargebacks}
    write = {topics.model_rollouts, topics.audit_log, topics.audit_refusals}
    yield from _topics(
        read={topics.job_progress, *write, *compared, *labels},
        write=write,
        describe_configs=compared | labels,
    )
    yield from _ids(
        writes_as=[f"{job_id}-rollouts"],
        describes=[f"{job_id}-rollouts", f"{job_id}-audit", f"{job_id}-precision"],
    )


def _writing_labels(topics: Topics) -> Iterator[Permission]:
    yield from _topics(write={topics.labels})
    # each writer has an id of its own (`labels.ledger`)
    prefix = f"fraud-labels-{topics.labels}-"
    yield Permission(Resource.TRANSACTIONAL_ID, prefix, (Operation.WRITE,), is_prefix=True)


def _topics(
    read: Collection[str] = (),
    write: Collection[str] = (),
    describe: Collection[str] = (),
    describe_configs: Collection[str] = (),
) -> Iterator[Permission]:
    """Yield one permission for each topic, sorted by name."""
    named = {
        Operation.READ: read,
        Operation.WRITE: write,
        Operation.DESCRIBE: describe,
        Operation.DESCRIBE_CONFIGS: describe_configs,
    }
    for topic in sorted({topic for topics in named.values() for topic in topics}):
        operations = tuple(operation for operation, topics in named.items() if topic in topics)
        yield Permission(Resource.TOPIC, topic, operations)


def _ids(writes_as: Collection[str] = (), describes: Collection[str] = ()) -> Iterator[Permission]:
    """Yield permissions on transactional ids and groups.

    Args:
        writes_as: transactional ids.
        describes: groups. librdkafka finds the coordinator of each consumer's group, even if the consumer
            never joins it.
    """
    for name in writes_as:
        yield Permission(Resource.TRANSACTIONAL_ID, name, (Operation.WRITE,))
    for group in describes:
        yield Permission(Resource.GROUP, group, (Operation.DESCRIBE,))
