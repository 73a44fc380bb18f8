"""The table of the topics: each field of `Topics` is a topic's row, and has its name."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator
from pydantic_settings import NoDecode

from streaming_job.contracts.topic import (
    COMPARE,
    READ,
    READ_WRITE,
    Component,
    Retention,
    Role,
    Topic,
    Without,
)


class Contract(StrEnum):
    """The record types, by the name of their schema, which is a file beside this one."""

    TRANSACTION = "transaction.v1"
    PROFILE = "profile.v1"
    CHARGEBACK = "chargeback.v1"
    LABEL = "label.v1"
    MERCHANT_FACT = "merchant-fact.v1"
    ALERT = "alert.v1"
    SHADOW_ALERT = "shadow-alert.v1"
    DEAD_LETTER = "dead-letter.v1"
    JOB_PROGRESS = "job-progress.v2"
    MODEL_ROLLOUT = "model-rollout.v2"
    RECORD_SCHEMA = "record-schema.v1"
    AUDIT_RECORD = "audit-record.v1"


_COMPARED = {Component.SIDECAR: COMPARE, Component.ROLLOUTS: COMPARE}
"""The guard `precision` compares alerts with labels."""
_CONTROLS = {Component.SIDECAR: READ_WRITE, Component.ROLLOUTS: READ_WRITE}
_LABELS_KEPT = Retention(None, "models are trained with labels of years; their senders keep none")
_RECOMPUTED = Without("the audit computes all facts again, with the features that depend on them")


def _alerts(
    contract: Contract, count: str, *, identity: tuple[str, ...] = (), is_prompt: bool = False
) -> Topic:
    """Return the row of a topic of alerts."""
    return Topic(
        Role.OUTPUT,
        contract,
        key="card_id",
        retention=Retention(130, "its precision is known only with the labels, up to 120 days later"),
        others=_COMPARED,
        count=count,
        identity=identity,
        is_prompt=is_prompt,
    )


def _names(given: str | Collection[str]) -> tuple[str, ...]:
    names = map(str.strip, given.split(",")) if isinstance(given, str) else given
    return tuple(dict.fromkeys(filter(None, names)))


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
"""A setting that names any number of topics, with commas between them."""


class Topics(BaseModel):
    """The names of the topics, each with its row of the table; the defaults are those of the documentation.

    `FRAUD_TOPICS__<FIELD>` renames a topic. A topic without a name is not used: by default `record_schemas`,
    which only jobs with framed transactions have. Outputs are written in the order of the rows.
    """

    transactions: Annotated[
        str,
        Topic(
            Role.INPUT,
            Contract.TRANSACTION,
            key="card_id",
            # Not so the features count_all, zscore_all, ratio_robust (hence the spikes) and
            # suspicious_count.total: they reach back to a card's first transaction, so a job that began
            # earlier has other values of them, and may decide otherwise.
            retention=Retention(
                40,
                "a job that starts at the beginning of the log has all windows (30 days) and all late events "
                "(7 days) 37 days after the oldest record",
            ),
            input_name="transactions",
            accepted=("transactions", "duplicates"),
            read_again=True,
            max_bytes=2 * 1024 * 1024,
        ),
    ] = "transactions"
    profiles: Annotated[
        str,
        Topic(
            Role.TABLE,
            Contract.PROFILE,
            key="card_id",
            # older versions of a profile are needed as long as a copy of the checkpoint may be restored: the
            # transactions after that copy are decided again, with the profiles of their time
            retention=Retention(
                None,
                "a card's newest profile stays, whatever its age, also where the topic is not compacted (a "
                "replay) and where someone adds `delete` to its policy",
                is_compacted=True,
                compaction_lag_days=7,
            ),
            input_name="profiles",
            accepted=("profile_changes",),
            read_again=True,
        ),
    ] = "bank.public.card_profiles"
    model_rollouts: Annotated[
        str,
        Topic(
            Role.TABLE,
            Contract.MODEL_ROLLOUT,
            key="rollout_id",
            retention=Retention(
                None, "a new job needs all events: who decides, and in which order that came about"
            ),
            others=_CONTROLS,
            input_name="rollouts",
            accepted=("rollouts",),
            is_spread=False,
            read_again=True,
        ),
    ] = "model-rollouts"
    record_schemas: Annotated[
        str,
        Topic(
            Role.TABLE,
            Contract.RECORD_SCHEMA,
            key="schema_id",
            retention=Retention(None, "a new job reads old transactions, each with the schema that it names"),
            others={Component.SCHEMAS: READ_WRITE},
            input_name="schemas",
            accepted=("schemas",),
            is_spread=False,
            read_again=True,
        ),
    ] = ""
    labels: Annotated[
        str,
        Topic(
            Role.TABLE,
            Contract.LABEL,
            key="card_id",
            retention=_LABELS_KEPT,
            others={
                Component.SIDECAR: COMPARE | READ_WRITE,
                Component.ROLLOUTS: COMPARE,
                Component.LABELS: READ_WRITE,
            },
            input_name="labels",
            accepted=("labels",),
            of_facts=True,
            read_again=True,
        ),
    ] = "labels"
    chargebacks: Annotated[
        str,
        Topic(
            Role.TABLE,
            Contract.CHARGEBACK,
            key="card_id",
            retention=_LABELS_KEPT,
            others={**_COMPARED, Component.LABELS: READ},
            input_name="labels",
            accepted=("labels",),
            of_facts=True,
            read_again=True,
        ),
    ] = "chargebacks"
    fraud_alerts: Annotated[str, _alerts(Contract.ALERT, "alerts", is_prompt=True)] = "fraud-alerts"
    suppressed_alerts: Annotated[str, _alerts(Contract.ALERT, "suppressed")] = "suppressed-alerts"
    shadow_alerts: Annotated[
        str, _alerts(Contract.SHADOW_ALERT, "shadow_alerts", identity=("rollout_id", "challenger"))
    ] = "shadow-alerts"
    dead_letters: Annotated[
        str,
        Topic(
            Role.OUTPUT,
            Contract.DEAD_LETTER,
            key="as received",
            retention=Retention(40, "they contain whole records, so no longer than transactions"),
            others={Component.DEAD_LETTERS: READ},
            count="dead_letters",
            without_digest=Without("each is compared with its record, byte by byte"),
            is_prompt=True,
            # 1 MiB (about the brokers' default) is enough: a dead letter has half a MiB at most, however
            # large its record (dead_letters/record.py), and a client's batch of them 1,000,000 bytes
            max_bytes=1024 * 1024,
        ),
    ] = "dead-letters"
    merchant_facts: Annotated[
        str,
        Topic(
            Role.STATE,
            Contract.MERCHANT_FACT,
            key="key group",
            retention=Retention(
                60, "the longest lookback of a feature, and as much again for a restored checkpoint"
            ),
            others={Component.SIDECAR: READ},
            count=_RECOMPUTED,
            without_digest=_RECOMPUTED,
            # a group's promise has to follow its facts
            is_spread=False,
            of_facts=True,
            read_again=True,
        ),
    ] = "merchant-facts"
    job_progress: Annotated[
        str,
        Topic(
            Role.PROGRESS,
            Contract.JOB_PROGRESS,
            key="job id",
            retention=Retention(30, "never compacted: each record is needed to audit its commit's alerts"),
            others={Component.SIDECAR: READ, Component.ROLLOUTS: READ},
            count=Without("one for each Kafka transaction, numbered by commit_id"),
            without_digest=Without("it contains the digests"),
            read_again=True,
        ),
    ] = "job-progress"
    dead_letter_replays: Annotated[
        str,
        Topic(
            Role.TOOL,
            Without("a note that only `fraud dead-letters` reads"),
            key="topic, partition and offset of the dead letter",
            retention=Retention(
                None, "the newest note on each dead letter that was sent again", is_compacted=True
            ),
            others={Component.DEAD_LETTERS: READ_WRITE},
            is_spread=False,
        ),
    ] = "dead-letter-replays"
    audit_log: Annotated[
        str,
        Topic(
            Role.TOOL,
            Contract.AUDIT_RECORD,
            key="null",
            retention=Retention(None, "each record contains the digest of the previous one"),
            others=_CONTROLS,
            is_spread=False,
            read_again=True,
        ),
    ] = "audit-log"
    audit_refusals: Annotated[
        str,
        Topic(
            Role.TOOL,
            Contract.AUDIT_RECORD,
            key="null",
            retention=Retention(90, "anybody with a token can cause refusals, so not for ever"),
            others=_CONTROLS,
            is_spread=False,
        ),
    ] = "audit-refusals"

    def rows(self) -> Iterator[tuple[str, Topic]]:
        """Yield the name of each topic that is used, with its row."""
        for field, row in TABLE.items():
            if name := getattr(self, field):
                yield name, row

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that every job folds into its state."""
        return tuple(name for name, row in self.rows() if row.role is Role.TABLE and not row.of_facts)

    @property
    def fact_tables(self) -> tuple[str, ...]:
        """The tables that a job folds in addition if it keeps merchant facts."""
        return tuple(name for name, row in self.rows() if row.of_facts)

    def folded_tables(self, *, facts: bool) -> tuple[str, ...]:
        """Return the tables that every key group folds, with or without merchant facts."""
        return (*self.tables, *self.fact_tables) if facts else self.tables

    def renamed(self, rename: Callable[[str], str], *, but: Collection[str]) -> "Topics":
        """Return a copy in which `rename` has changed all names, except those of the fields `but`."""
        return type(self)(
            **{
                field: rename(name) if name and field not in but else name
                for field, name in self.model_dump().items()
            }
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics whose timestamps are arrivals; facts have times of their own."""
        return tuple(name for name, row in self.rows() if row.has_arrivals)

    @property
    def heartbeats(self) -> str:
        """The topic of Debezium's heartbeats, by its default name."""
        return f"__debezium-heartbeat.{self.profiles.partition('.')[0]}"

    @property
    def job_topics(self) -> tuple[str, ...]:
        """The topics that every job reads or writes; the others are for tools, sidecar and merchant facts."""
        return tuple(name for name, row in self.rows() if row.role is not Role.TOOL and not row.of_facts)

    def configs(
        self, *, replay: bool = False, replicas: int = 1, any_size: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return the topic-level configuration by topic name.

        Args:
            replay: on the input topics, take record timestamps from the producer (CreateTime) and keep
                records whatever their age, so that an archive can be replayed with its original arrival
                times; otherwise the broker sets the timestamps.
            any_size: remove the size limit (`retention.bytes`) from the topics whose old records are read
                again; a size limit would delete records before their retention time. Otherwise the brokers'
                limit holds.
        """
        # a record that only one broker of three has would be lost with that broker
        common = {"min.insync.replicas": "2" if replicas > 2 else "1"}
        return {name: {**common, **row.config(replay=replay, any_size=any_size)} for name, row in self.rows()}

    @property
    def compacted(self) -> frozenset[str]:
        """Names of the topics that may be compacted."""
        return frozenset(name for name, row in self.rows() if row.retention.is_compacted)

    def partitions(self, partitions: int) -> dict[str, int]:
        """Return the partition count by topic name, given that of the transactions."""
        return {name: partitions if row.is_spread else 1 for name, row in self.rows()}


TABLE: Mapping[str, Topic] = {field: info.metadata[0] for field, info in Topics.model_fields.items()}
"""The row of each field of `Topics`, in order."""
WRITTEN = tuple(f for f, row in TABLE.items() if row.is_written and row.role is not Role.PROGRESS)
"""The topics that a Kafka transaction of the job writes before its progress, in the order of writing."""
COUNTED: Mapping[str, str] = {f: row.count for f, row in TABLE.items() if not isinstance(row.count, Without)}
"""Name of the count in the progress record, by field."""
DIGESTED: Mapping[str, str] = {f: name for f, name in COUNTED.items() if TABLE[f].without_digest is None}
"""Name of the digest in the progress record, by field."""
ACCEPTED: Mapping[str, Sequence[str]] = {
    row.input_name: row.accepted for row in TABLE.values() if row.has_arrivals
}
"""Counts that add up to the accepted records of an input, by the input's name."""
PROMPT = tuple(f for f, row in TABLE.items() if row.is_prompt)
"""The topics whose records are committed at once."""
