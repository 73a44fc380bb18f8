"""Settings of the job, from the environment (`FRAUD_...`) or from code."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import Partitioner

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class JobSettings(BaseSettings):
    """Everything that can differ between two installations of the job.

    Each field can be given as environment variable `FRAUD_<NAME>`, nested ones with two underscores
    (`FRAUD_TOPICS__TRANSACTIONS`); `FRAUD_KAFKA` and `FRAUD_SPARK` take a JSON object each.
    """

    model_config = SettingsConfigDict(env_prefix="FRAUD_", env_nested_delimiter="__", extra="forbid")

    job_id: str = "card-fraud"
    """Names the job everywhere: consumer group, transactional.id, progress key."""
    bootstrap_servers: str
    """Kafka brokers, host:port[,host:port]."""
    kafka: dict[str, str] = {}
    """More Kafka client settings for every client, for example security.protocol (librdkafka names)."""
    topics: Topics = Topics()
    mlflow_tracking_uri: str
    """Where the models of the rollouts are registered."""
    checkpoint: str
    """Directory of Spark's checkpoint: a path, or a URI that every executor can reach."""
    work_dir: Path
    """Local directory for working copies of state and models, and for scratch; may be lost between runs."""
    master: str = "local[2,4]"
    """Spark master; a local one says how often a task may fail, too: once would end the job with every worker
    that is killed."""
    partitioner: Partitioner = Partitioner.MURMUR2
    """How the producers of the transactions choose the partition of a card: murmur2 (Java's clients,
    librdkafka's murmur2_random) or crc32 (librdkafka's default); fixed by the first start."""
    key_groups: Annotated[int, Field(ge=1, le=4096)] = 2
    """Groups in which cards are decided side by side, at most one a partition of the transactions and one a
    task slot; fixed by the first start."""
    merchant_facts: bool = False
    """Whether labels become merchant facts, and models may ask for merchant label features. It takes the
    topics labels, chargebacks and merchant-facts, and more of state; fixed by the first start: a label finds
    its transaction only if the state has kept ids from the beginning."""
    label_delay_ms: Annotated[int, Field(ge=0)] = 7 * DAY_MS
    """With merchant facts: a transaction that nobody has reported for so long counts as genuine, in training
    sets, too; fixed by the first start."""
    epoch_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    """Seconds between two checkpoints of the state. Each costs a pause of about a tenth of a second; after a
    crash the log is decided again, in silence, from the last one."""
    warm_up_epochs: Annotated[int, Field(ge=0, le=1_000)] = 100
    """So many epochs after a start are short. Java compiles what lies between two epochs only after it has
    run so often: the pause shrinks from half a second to a tenth."""
    epoch_bytes: Annotated[int, Field(ge=1 << 20)] = 64 << 20
    """An epoch ends earlier when a key group has written so much to its state."""
    max_records: Annotated[int, Field(ge=1)] = 50_000
    """Upper bound of the records decided together: enough to make a Kafka transaction cheap in a backlog."""
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 32 << 20
    """Upper bound of their keys and values, to which one record at most is added: what a flood may take of
    memory, and of a transaction's time."""
    linger_ms: Annotated[float, Field(ge=0, le=1000)] = 3.0
    """How long the first record waits for others: each set of records costs a millisecond of processor
    time."""
    commit_interval_ms: Annotated[int, Field(ge=1, le=60_000)] = 200
    """How often positions are committed when there is nothing to say; an alert is committed at once."""
    allowed_lateness_ms: Annotated[int, Field(ge=0)] = 7 * DAY_MS
    """Older transactions (event time against arrival) become dead letters: too_late."""
    allowed_skew_ms: Annotated[int, Field(ge=0)] = 5 * MINUTE_MS
    """Transactions further ahead of their arrival become dead letters: future_event_time."""
    refuse_card_numbers: bool = True
    """Transactions whose card_id has the form of a card number (13 to 19 digits, Luhn) become dead letters:
    card_number. Not where tokens look like that."""
    wait_for_snapshot_s: Annotated[int, Field(ge=0)] = 600
    """At a first start: how long Debezium's first snapshot of the profiles may take; 0 does not wait."""
    transaction_timeout_ms: Annotated[int, Field(ge=10_000, le=900_000)] = 120_000
    """The brokers abort a transaction that is open for longer: far above what writing one takes."""
    epoch_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port on which the driver tells the tasks that an epoch is over; 0: any that is free."""
    spark: dict[str, str] = {}
    """More Spark settings, for example spark.executor.instances; they win over the job's own."""
    driver_memory: str = "640m"
    """Heap of the driver's JVM."""
    driver_java_options: str = ""
    """More options of the driver's JVM, as on a command line; in `spark` they would replace the job's own."""
    ui_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of Spark's UI, which has no login; 0: there is none."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that every key group folds."""
        return self.topics.folded(facts=self.merchant_facts)

    @property
    def merchant_delay_ms(self) -> int | None:
        """Label delay of merchant facts; None: the job keeps none."""
        return self.label_delay_ms if self.merchant_facts else None

    def variables(self) -> dict[str, str]:
        """The same as environment variables, for a job in another process."""
        found: dict[str, str] = {}
        for name, value in self.model_dump(mode="json").items():
            if name == "topics":
                found |= {f"FRAUD_TOPICS__{field.upper()}": topic for field, topic in value.items()}
            else:
                found[f"FRAUD_{name.upper()}"] = json.dumps(value) if isinstance(value, dict) else str(value)
        return found
