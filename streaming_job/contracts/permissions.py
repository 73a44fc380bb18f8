"""The permissions that the job's principal needs on brokers with an authoriser."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from streaming_job.contracts.topics import Topics


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


def of_job(job_id: str, topics: Topics, *, facts: bool) -> Iterator[Permission]:
    """Yield the permissions of a job.

    Args:
        job_id: id of the job.
        topics: names of its topics.
        facts: whether it keeps merchant facts.
    """
    read = {topics.transactions, topics.job_progress, *topics.folded_tables(facts=facts)}
    write = {*topics.job_topics} - {topics.transactions, *topics.tables}
    if facts:
        write.add(topics.merchant_facts)
    for topic in sorted(read | write):
        allowed = ((Operation.READ, topic in read), (Operation.WRITE, topic in write))
        yield Permission(Resource.TOPIC, topic, tuple(name for name, is_allowed in allowed if is_allowed))
    yield Permission(Resource.TRANSACTIONAL_ID, f"{job_id}-", (Operation.WRITE,), is_prefix=True)
    yield Permission(Resource.GROUP, job_id, (Operation.READ,))
    # librdkafka finds the coordinator of each consumer's group, even if the consumer never joins it
    for group in (f"{job_id}-start", f"{job_id}-bootstrap", "end-offsets"):
        yield Permission(Resource.GROUP, group, (Operation.DESCRIBE,))
