"""The description of a topic: everything that job, tools and brokers need to know of it, as data. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from feature_store.catalogue import DAY_MS, HOUR_MS

CREATE_TIME = {"message.timestamp.type": "CreateTime"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
ANY_SIZE = {"retention.bytes": "-1"}
CLOCKS_MS = HOUR_MS
"""Greatest difference between the clocks of two machines, with a wide margin."""


class Role(StrEnum):
    """What a topic is to the job."""

    INPUT = "input"
    """Its records are decided."""
    TABLE = "table"
    """Its records are folded into the state of every key group."""
    OUTPUT = "output"
    """The job writes it for others, in its Kafka transactions."""
    STATE = "state"
    """The job writes it in its Kafka transactions, and every key group folds it."""
    PROGRESS = "progress"
    """One record for each Kafka transaction of the job."""
    TOOL = "tool"
    """Sidecar and tools use it; the job does not."""


class Operation(StrEnum):
    """Operations, as `kafka-acls.sh` names them; READ, WRITE and DELETE imply DESCRIBE."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    CREATE = "Create"
    DELETE = "Delete"


class Component(StrEnum):
    """Programs that connect to the brokers; each can have a principal of its own."""

    JOB = "job"
    SIDECAR = "sidecar"
    """Its permissions suffice for rollouts, labels and all guards."""
    ROLLOUTS = "rollouts"
    """`fraud rollouts`, which model owners run."""
    LABELS = "labels"
    SCHEMAS = "schemas"
    """`fraud schemas`."""
    DEAD_LETTERS = "dead-letters"
    AUDIT = "audit"
    """`fraud verify`."""
    ARCHIVE = "archive"
    """`fraud archive`."""
    REPLAY = "replay"
    """`fraud replay`. A switch and the way back need the job's permissions, too: they become the job."""


Operations = frozenset[Operation]
READ = frozenset({Operation.READ})
WRITE = frozenset({Operation.WRITE})
READ_WRITE = READ | WRITE
COMPARE = frozenset({Operation.READ, Operation.DESCRIBE_CONFIGS})
"""Reads a topic, and how long it is kept."""
_JOB_READS = READ | {Operation.DESCRIBE_CONFIGS}
_JOB_WRITES = WRITE | {Operation.DESCRIBE_CONFIGS}
_RECORDED = {Component.AUDIT: READ, Component.ARCHIVE: READ, Component.REPLAY: COMPARE}
_DECISIVE = {
    Component.JOB: _JOB_READS,
    Component.SIDECAR: READ,
    Component.DEAD_LETTERS: READ_WRITE,
    **_RECORDED,
}
_BY_ROLE: Mapping[Role, Mapping[Component, Operations]] = {
    Role.INPUT: _DECISIVE,
    Role.TABLE: _DECISIVE,
    Role.OUTPUT: {Component.JOB: _JOB_WRITES, **_RECORDED},
    Role.STATE: {Component.JOB: _JOB_READS | _JOB_WRITES, **_RECORDED},
    Role.PROGRESS: {Component.JOB: _JOB_READS | _JOB_WRITES, **_RECORDED},
    Role.TOOL: {},
}
"""The job reads or writes a topic, and its settings; the sidecar watches inputs and tables, and their records
can be replayed."""


@dataclass(frozen=True)
class Retention:
    """How long a topic's records are kept."""

    days: int | None
    """None: for ever."""
    reason: str
    is_compacted: bool = False
    """Whether the newest record of each key is kept instead of all."""
    compaction_lag_days: int = 0
    """Age that a record must have before compaction may remove it."""

    def compacted_before(self, now_ms: int) -> int:
        """Return the arrival before which compaction may have removed records by now, ms."""
        return now_ms - self.compaction_lag_days * DAY_MS + CLOCKS_MS

    def config(self) -> dict[str, str]:
        """Return the topic-level configuration."""
        config = {"cleanup.policy": "compact" if self.is_compacted else "delete"}
        if self.compaction_lag_days:
            config["min.compaction.lag.ms"] = str(self.compaction_lag_days * DAY_MS)
        return {**config, "retention.ms": "-1" if self.days is None else str(self.days * DAY_MS)}


@dataclass(frozen=True)
class Without:
    """The reason why a topic has no count, digest or contract."""

    reason: str


@dataclass(frozen=True)
class Topic:
    """One row of the table of topics."""

    role: Role
    contract: str | Without
    """Name of the JSON Schema, a file beside this one. The records of a topic with a digest have the fields
    `source`, which is the transaction that they are about, and `release`."""
    key: str
    """What the key of a record contains; for a topic with a digest the name of a field."""
    retention: Retention
    others: Mapping[Component, Operations] = field(default_factory=dict)
    """What components may do in addition to what follows from the role."""
    input_name: str = ""
    """What status and metrics call the records of an input or a table; two topics can be one input."""
    accepted: tuple[str, ...] = ()
    """Counts of the progress record that add up to the records of the input that became no dead letters."""
    count: str | Without = Without("the job does not write it")
    """Name, in `counts` of the progress record, of the number of records of a Kafka transaction."""
    without_digest: Without | None = None
    """Why `digests` of the progress record lacks the SHA-256 over the values of a transaction's records.
    None: it has it, by the name of the count; the records are then written in the order of the transactions
    that they are about."""
    identity: tuple[str, ...] = ()
    """Fields that distinguish several records of a topic about one transaction."""
    is_prompt: bool = False
    """Whether a record of it is committed at once, without waiting for the commit interval."""
    is_spread: bool = True
    """Whether it has as many partitions as the transactions; otherwise it has one, whose order counts."""
    of_facts: bool = False
    """Whether only a job that keeps merchant facts uses it."""
    read_again: bool = False
    """Whether old records are read again: a limit of size would delete them before their time."""
    max_bytes: int | None = None
    """Limit of a batch of records; None: that of the brokers."""

    @property
    def is_written(self) -> bool:
        """Whether the job writes it, in its Kafka transactions."""
        return self.role in (Role.OUTPUT, Role.STATE, Role.PROGRESS)

    @property
    def is_archived(self) -> bool:
        """Whether its records decide or are decided."""
        return self.role is not Role.TOOL

    @property
    def has_arrivals(self) -> bool:
        """Whether the timestamps of its records are arrivals, which the brokers set."""
        return self.role in (Role.INPUT, Role.TABLE)

    def operations(self, component: Component, *, facts: bool) -> Operations:
        """Return what a component may do.

        Args:
            facts: whether the job keeps merchant facts.
        """
        by_role = _BY_ROLE[self.role].get(component, frozenset())
        if component is Component.JOB and self.of_facts and not facts:
            by_role = frozenset()
        return by_role | self.others.get(component, frozenset())

    def config(self, *, replay: bool, any_size: bool) -> dict[str, str]:
        """Return the topic-level configuration; see `Topics.configs`."""
        config = self.retention.config()
        if self.has_arrivals:
            if replay:
                # an archive is older than any retention, and its versions are older than any compaction lag,
                # so compaction would remove them at once
                config = Retention(None, "an archive").config()
            config |= CREATE_TIME if replay else LOG_APPEND_TIME
        if self.max_bytes is not None:
            config["max.message.bytes"] = str(self.max_bytes)
        return {**config, **(ANY_SIZE if any_size and self.read_again else {})}
