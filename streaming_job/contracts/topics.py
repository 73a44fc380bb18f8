"""Names and settings of the topics."""

from collections.abc import Callable, Collection

from pydantic import BaseModel

from feature_store.catalogue import DAY_MS

CREATE_TIME = {"message.timestamp.type": "CreateTime"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACT = {"cleanup.policy": "compact"}
ANY_SIZE = {"retention.bytes": "-1"}
FOR_EVER = {"retention.ms": "-1"}
RETENTION_MS = str(40 * DAY_MS)
"""Retention of the transactions: a job that starts at the beginning of the log has all windows (30 days) and
all late events (7 days) 37 days after the oldest record. Not so the features count_all, zscore_all,
ratio_robust (hence the spikes) and suspicious_count.total: they reach back to a card's first transaction, so
a job that began earlier has other values of them, and may decide otherwise."""
OUTPUT_RETENTION_MS = str(130 * DAY_MS)
"""Retention of alerts: their precision is known only with the labels, which arrive up to 120 days later."""


class Topics(BaseModel):
    """The names of the topics; the defaults are those of the documentation."""

    transactions: str = "transactions"
    profiles: str = "bank.public.card_profiles"
    chargebacks: str = "chargebacks"
    labels: str = "labels"
    merchant_facts: str = "merchant-facts"
    model_rollouts: str = "model-rollouts"
    fraud_alerts: str = "fraud-alerts"
    suppressed_alerts: str = "suppressed-alerts"
    shadow_alerts: str = "shadow-alerts"
    dead_letters: str = "dead-letters"
    dead_letter_replays: str = "dead-letter-replays"
    job_progress: str = "job-progress"
    audit_log: str = "audit-log"
    audit_refusals: str = "audit-refusals"

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that every job folds into its state."""
        return (self.profiles, self.model_rollouts)

    @property
    def fact_tables(self) -> tuple[str, ...]:
        """The tables that a job folds in addition if it keeps merchant facts."""
        return (self.merchant_facts, self.labels, self.chargebacks)

    def folded_tables(self, *, facts: bool) -> tuple[str, ...]:
        """Return the tables that every key group folds, with or without merchant facts."""
        return (*self.tables, *self.fact_tables) if facts else self.tables

    def renamed(self, rename: Callable[[str], str], *, but: Collection[str]) -> "Topics":
        """Return a copy in which `rename` has changed all names, except those of the fields `but`."""
        return Topics(
            **{field: name if field in but else rename(name) for field, name in self.model_dump().items()}
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics whose timestamps are arrivals; facts have times of their own."""
        return (self.transactions, *self.tables, self.labels, self.chargebacks)

    @property
    def heartbeats(self) -> str:
        """The topic of Debezium's heartbeats, by its default name."""
        return f"__debezium-heartbeat.{self.profiles.partition('.')[0]}"

    @property
    def job_topics(self) -> tuple[str, ...]:
        """The topics that every job reads or writes; the others are for tools, sidecar and merchant facts."""
        outputs = (self.fraud_alerts, self.suppressed_alerts, self.shadow_alerts, self.dead_letters)
        return (self.transactions, *self.tables, *outputs, self.job_progress)

    def configs(
        self, *, replay: bool = False, replicas: int = 1, any_size: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return the topic-level configuration by topic name.

        Args:
            replay: on the input topics, take record timestamps from the producer (CreateTime) and keep
                records whatever their age, so that an archive can be replayed with its original arrival
                times; otherwise the broker sets the timestamps.
            replicas: number of replicas of each partition.
            any_size: remove the size limit (`retention.bytes`) from the topics whose old records are read
                again; a size limit would delete records before their retention time. Otherwise the brokers'
                limit holds.
        """
        arrival = CREATE_TIME if replay else LOG_APPEND_TIME
        # a record that only one broker of three has would be lost with that broker
        common = {"min.insync.replicas": "2" if replicas > 2 else "1", "cleanup.policy": "delete"}
        # older versions of a profile are needed as long as a copy of the checkpoint may be restored: the
        # transactions after that copy are decided again, with the profiles of their time. An archive's
        # versions are older than any compaction lag, so compaction would remove them at once
        versions = {} if replay else {**COMPACT, "min.compaction.lag.ms": str(7 * DAY_MS)}
        own = {
            self.transactions: {
                # an archive is older than any retention
                **(FOR_EVER if replay else {"retention.ms": RETENTION_MS}),
                **arrival,
                "max.message.bytes": str(2 * 1024 * 1024),
            },
            # compacted: a card's newest profile stays, whatever its age; the retention holds for a topic that
            # is not compacted (a replay), and where someone adds `delete` to its policy
            self.profiles: {**arrival, **versions, **FOR_EVER},
            # models are trained with labels of years, and their senders do not keep them
            self.chargebacks: {**arrival, **FOR_EVER},
            self.labels: {**arrival, **FOR_EVER},
            # the longest lookback of a feature, and as much again for a restored checkpoint
            self.merchant_facts: {"retention.ms": str(60 * DAY_MS)},
            # a new job needs all events: they name who decides, and in which order that came about
            self.model_rollouts: {**arrival, **FOR_EVER},
            self.fraud_alerts: {"retention.ms": OUTPUT_RETENTION_MS},
            # compared with the alerts, so kept as long
            self.suppressed_alerts: {"retention.ms": OUTPUT_RETENTION_MS},
            self.shadow_alerts: {"retention.ms": OUTPUT_RETENTION_MS},
            # 1 MiB (about the brokers' default) is enough: a dead letter has half a MiB at most, however
            # large its record (dead_letters/record.py), and a client's batch of them 1,000,000 bytes. Dead
            # letters contain whole records, so they are kept no longer than transactions
            self.dead_letters: {"max.message.bytes": str(1024 * 1024), "retention.ms": RETENTION_MS},
            # the newest note on each dead letter that was sent again, for ever
            self.dead_letter_replays: {**COMPACT, **FOR_EVER},
            # never compacted: every record is needed to audit the alerts of its commit
            self.job_progress: {"retention.ms": str(30 * DAY_MS)},
            # the audit log is kept for ever: each record contains the digest of the previous one
            self.audit_log: FOR_EVER,
            # anybody with a token can cause refusals, so they are not kept for ever
            self.audit_refusals: {"retention.ms": str(90 * DAY_MS)},
        }
        read_again = {
            self.transactions,
            *self.folded_tables(facts=True),
            self.job_progress,
            self.audit_log,
        }
        return {
            name: {**common, **config, **(ANY_SIZE if any_size and name in read_again else {})}
            for name, config in own.items()
        }

    def partitions(self, partitions: int) -> dict[str, int]:
        """Return the partition count by topic name, given the count of the topics keyed by card."""
        counts = dict.fromkeys(self.configs(), partitions)
        # facts need one partition: a group's promise has to follow its facts
        for topic in (
            self.merchant_facts,
            self.model_rollouts,
            self.job_progress,
            self.dead_letter_replays,
            self.audit_log,
            self.audit_refusals,
        ):
            counts[topic] = 1
        return counts
