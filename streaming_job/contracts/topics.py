"""Names and settings of the topics."""

from collections.abc import Callable, Collection

from pydantic import BaseModel

CREATE_TIME = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACT = {"cleanup.policy": "compact"}
DAY_MS = 24 * 3600 * 1000
KEPT_MS = str(40 * DAY_MS)
"""A job that starts from the beginning decides as the one before did from where it has 37 days: 30 of windows
and 7 of lateness."""


class Topics(BaseModel):
    """Topic names; the defaults are those of the documentation."""

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

    @property
    def tables(self) -> tuple[str, ...]:
        """The changelogs that the job folds into its state."""
        return (self.profiles, self.model_rollouts)

    @property
    def of_facts(self) -> tuple[str, ...]:
        """What a job that keeps merchant facts folds beside them."""
        return (self.merchant_facts, self.labels, self.chargebacks)

    def folded(self, *, facts: bool) -> tuple[str, ...]:
        """What every key group folds, with or without merchant facts."""
        return (*self.tables, *self.of_facts) if facts else self.tables

    def renamed(self, rename: Callable[[str], str], *, but: Collection[str]) -> "Topics":
        """Names of one's own, but for some fields."""
        return Topics(
            **{field: name if field in but else rename(name) for field, name in self.model_dump().items()}
        )

    @property
    def heartbeats(self) -> str:
        """Where Debezium says now and then that it lives, as it names that topic by default."""
        return f"__debezium-heartbeat.{self.profiles.partition('.')[0]}"

    @property
    def of_the_job(self) -> tuple[str, ...]:
        """What the job reads and writes; the others are of tools."""
        said = (self.fraud_alerts, self.suppressed_alerts, self.shadow_alerts, self.dead_letters)
        return (self.transactions, *self.tables, *said, self.job_progress)

    def configs(self, *, replay: bool = False, replicas: int = 1) -> dict[str, dict[str, str]]:
        """Topic-level configuration by topic name.

        Args:
            replay: take record timestamps from the producer (CreateTime) on the input topics, so that an
                archive can be fed with its original arrival times; otherwise the broker stamps them.
            replicas: of each partition.
        """
        # an archive is older than any retention
        arrival = CREATE_TIME if replay else LOG_APPEND_TIME
        # a record that only one broker of three has taken is gone with it
        common = {"min.insync.replicas": "2" if replicas > 2 else "1", "cleanup.policy": "delete"}
        own = {
            self.transactions: {
                "retention.ms": KEPT_MS,
                **arrival,
                "max.message.bytes": str(2 * 1024 * 1024),
            },
            # older versions are needed as long as a copy of the checkpoint may be restored: what came after
            # the copy is decided again, with what was known then
            self.profiles: {**arrival, **COMPACT, "min.compaction.lag.ms": str(7 * DAY_MS)},
            self.chargebacks: arrival,
            self.labels: {**arrival, "retention.ms": "-1"},
            # as long as any feature looks back, and as much again for the checkpoint that is restored
            self.merchant_facts: {"retention.ms": str(60 * DAY_MS)},
            self.model_rollouts: {**arrival, "retention.ms": "-1"},
            self.fraud_alerts: {},
            self.suppressed_alerts: {},
            self.shadow_alerts: {},
            # whatever brokers take by default: a dead letter has half a MiB at most, however large its record
            # (dead_letters/record.py); clients put several into a batch of 1,000,000 bytes. They hold whole
            # records, so they are kept no longer than those
            self.dead_letters: {"max.message.bytes": str(1024 * 1024), "retention.ms": KEPT_MS},
            # which dead letters have been sent again: the newest word on each, for ever
            self.dead_letter_replays: COMPACT,
            # never compacted: every record is needed to audit the alerts of its transaction
            self.job_progress: {"retention.ms": str(30 * DAY_MS)},
            # who changed what: never forgotten, each record names the digest of the one before
            self.audit_log: {"retention.ms": "-1"},
        }
        return {name: {**common, **config} for name, config in own.items()}

    def partitions(self, partitions: int) -> dict[str, int]:
        """Partition count by topic name, given the count of the topics keyed by card."""
        counts = dict.fromkeys(self.configs(), partitions)
        # a group's promise stands behind its facts: in one partition
        for topic in (
            self.merchant_facts,
            self.model_rollouts,
            self.job_progress,
            self.dead_letter_replays,
            self.audit_log,
        ):
            counts[topic] = 1
        return counts
