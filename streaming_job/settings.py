"""Settings of the job, from the environment (`FRAUD_...`) or from code."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from feature_store.catalogue import DAY_MS, FORGET_AFTER_MS, MINUTE_MS, STRANGER_MARGIN_MS
from streaming_job.contracts.topics import Names, Topics
from streaming_job.log.partitioner import Layout, Partitioner

MOST_LABEL_DELAY_MS = 120 * DAY_MS
"""The longest time in which cardholders may dispute a payment; counts of merchants are kept for so long."""
DECISIVE = ("allowed_lateness_ms", "allowed_skew_ms", "refuse_card_numbers", "arrival")
"""The settings that decisions depend on and that may change between two starts. The state keeps the values
with which it was made; other values are taken over only while P = Q (`group.settings_in_force`)."""


def as_text(value: Any) -> str:
    """Return the value of a setting as it is written in the environment."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _not_empty(value: Any) -> Any:
    # an empty one would be the current directory, where a start would remove old files
    if value == "":
        raise ValueError("it is empty; name a directory")
    return value


class Arrival(StrEnum):
    """The clocks that set the timestamps of the input topics' records, which are their arrivals."""

    LOG_APPEND = "log_append"
    """The brokers' (message.timestamp.type=LogAppendTime)."""
    CREATE = "create"
    """The producers' (CreateTime), as in a replay of an archive with its original arrivals."""


class JobSettings(BaseSettings):
    """Everything that can differ between two installations of the job.

    Each field can be given as environment variable `FRAUD_<NAME>`, nested ones with two underscores
    (`FRAUD_TOPICS__TRANSACTIONS`); `FRAUD_KAFKA` and `FRAUD_SPARK` take a JSON object each.
    """

    model_config = SettingsConfigDict(env_prefix="FRAUD_", env_nested_delimiter="__", extra="forbid")

    job_id: str = "card-fraud"
    """Id of the job: its consumer group, prefix of transactional ids, and key of progress records; fixed by
    the first start."""
    bootstrap_servers: str
    """Kafka brokers, host:port[,host:port]."""
    kafka: dict[str, str] = {}
    """More Kafka client settings, a JSON object with librdkafka's names, for example {"security.protocol":
    "SASL_SSL"}. Every client has them; the job's own connections take only those of their login (see "TLS and
    SASL" in operations)."""
    topics: Topics = Topics()
    """Names of the topics."""
    mlflow_tracking_uri: str
    """Registry of the models that rollouts name."""
    checkpoint: Annotated[str, BeforeValidator(_not_empty)]
    """Directory of Spark's checkpoint: a path, or a URI that every executor can reach (see "Where the
    checkpoint may be" in operations)."""
    predecessor: str = ""
    """Id of the Spark query whose output this checkpoint takes over, under the same job id (see "Changing a
    running job" in operations): the query that has written last, as the error message at a start without this
    setting names it. It has no effect once the output has been taken over; empty: no takeover."""
    predecessor_checkpoint: str = ""
    """Directory of the predecessor's checkpoint, or of a copy: a first start then takes its newest saved
    state, split and merged by card, instead of reading the log from its beginning. Without `predecessor` the
    output of a new job begins where that state ends, as in a replay."""
    retired_transactions: Names = ()
    """Topics that the transactions have left, because a takeover moved the cards to another one:
    topic[,topic]. Records that still arrive there become dead letters: retired_topic. A takeover has to name
    those that its predecessor follows; a restart without one of them forgets it for good."""
    log_archive: str = ""
    """Directory or URI of an archive (`fraud archive run`) in which the inputs begin: what it has of them is
    read there, the rest from the topics, which may have lost their beginnings. It is for replays, whose
    `start --archive` sets it. Empty: the inputs begin where the topics do."""
    drain: bool = False
    """Whether the job only decides what its inputs hold when it starts, and then ends by itself: for a
    takeover to another topic, number of partitions or partitioner (see "More partitions" in operations). It
    then ignores partitions that its topic has got since the first start."""
    asked_by: str = ""
    """Who asks for the takeover; its record names them. Empty: it names the driver's host."""
    work_dir: Annotated[Path, BeforeValidator(_not_empty)]
    """Local directory for working copies of state and models, and for temporary files; it may be lost between
    runs. A start removes the temporary files of a job that was killed, and what no job of this machine has
    used for 30 days."""
    master: str = "local[2,4]"
    """Spark master. In a local one the second number is how often Spark attempts a task: with 1 every killed
    worker would end the job."""
    partitioner: Partitioner = Partitioner.MURMUR2
    """Partitioner of the transactions' producers: murmur2 (Java's clients, librdkafka's murmur2_random) or
    crc32 (librdkafka's default); fixed by the first start."""
    key_groups: Annotated[int, Field(ge=1, le=4096)] = 2
    """Number of groups that decide cards in parallel; at most the number of the transactions' partitions;
    changed only by a takeover (see "How many key groups" in operations). With fewer task slots than groups,
    a group that has to be opened is late."""
    merchant_facts: bool = False
    """Whether labels become merchant facts, and models may use merchant label features. It needs the topics
    labels, chargebacks and merchant-facts, and a larger state; fixed by the first start, because a label
    finds its transaction only if the state has kept the ids of transactions from the beginning; changed by
    the switch to a replay (see "Changing a running job" in operations)."""
    label_delay_ms: Annotated[int, Field(ge=0, le=MOST_LABEL_DELAY_MS)] = 7 * DAY_MS
    """With merchant facts: a transaction that has not been reported as fraud for that long, at most 120 d,
    counts as genuine; fixed by the first start, and changed by the switch to a replay. Models with merchant
    label features must be trained with the same delay."""
    epoch_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    """Seconds between two checkpoints of the state; no alert waits for them. After a crash the log is decided
    again, in silence, from the last checkpoint."""
    epoch_bytes: Annotated[int, Field(ge=1 << 20)] = 64 << 20
    """An epoch ends early after a key group has changed this many bytes of its state. With twice as many in
    memory, because Spark does not take them, the group waits."""
    max_records: Annotated[int, Field(ge=1)] = 50_000
    """Maximum number of records in a mini-batch. With so many, in a backlog, the cost of the Kafka
    transaction hardly counts."""
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 32 << 20
    """Maximum bytes of a mini-batch's keys and values; the last few records may exceed it. It bounds
    memory, and the duration of a Kafka transaction, in a flood of large records."""
    spacing_ms: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Least time between the beginnings of two mini-batches. Each has fixed costs for the group and for the
    brokers, which many groups share. A record that arrives sooner waits for the rest of that time."""
    commit_interval_ms: Annotated[int, Field(ge=1, le=60_000)] = 200
    """Interval of commits while there is no output; alerts, dead letters and promises do not wait for it."""
    allowed_lateness_ms: Annotated[int, Field(ge=0, le=FORGET_AFTER_MS - STRANGER_MARGIN_MS)] = 7 * DAY_MS
    """Transactions whose event time is more than this before their arrival become dead letters: too_late.
    At most 89 days: a card is forgotten after 90 days, and then its transactions would not be recognised when
    they are repeated. Stored with the state: a change is taken over at the next start after a clean stop, and
    refused after a crash (see "When the job refuses to start" in operations)."""
    allowed_skew_ms: Annotated[int, Field(ge=0, le=STRANGER_MARGIN_MS)] = 5 * MINUTE_MS
    """Transactions whose event time is more than this after their arrival become dead letters:
    future_event_time. At most a day, for the reason given at allowed_lateness_ms, and stored like it."""
    refuse_card_numbers: bool = True
    """Whether transactions whose card_id has the form of a card number (13 to 19 digits, Luhn) become dead
    letters: card_number. Set it to false if the bank's card tokens have that form. Stored with the state,
    like allowed_lateness_ms."""
    arrival: Arrival = Arrival.LOG_APPEND
    """Whose clock sets the arrivals of the inputs: log_append (the brokers') or create (the producers', for
    the replay of an archive). With log_append the job refuses input topics and records that have the
    producers' timestamps: a producer could choose what its transactions are compared with. Stored with the
    state, like allowed_lateness_ms."""
    wait_for_snapshot_s: Annotated[int, Field(ge=0)] = 600
    """Seconds to wait for Debezium's first snapshot of the profiles, at a first start; 0: no wait, where
    there are no profiles."""
    transaction_timeout_ms: Annotated[int, Field(ge=10_000, le=900_000)] = 120_000
    """Time after which the brokers abort an open transaction; far more than writing one takes. The brokers'
    transaction.max.timeout.ms must not be less."""
    epoch_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the driver, to which tasks connect to learn when an epoch ends; 0: any free port."""
    spark: dict[str, str] = {}
    """More Spark settings, a JSON object, for example {"spark.executor.instances": "2"}; they override the
    job's own."""
    spark_conf_dir: str = ""
    """Directory with files of Spark's configuration (spark-defaults.conf, log4j2.properties, spark-env.sh),
    which the job's own settings override; empty: none is read, whatever SPARK_CONF_DIR says."""
    driver_memory: str = "640m"
    """Heap of the driver's JVM, in the form of Java's -Xmx."""
    driver_java_options: str = ""
    """More options of the driver's JVM, as on a command line; given in FRAUD_SPARK, they would
    replace the job's own."""
    ui_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of Spark's UI, which has no login; 0: no UI."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that every key group folds."""
        return self.topics.folded_tables(facts=self.merchant_facts)

    @property
    def by_broker(self) -> tuple[str, ...]:
        """The input topics whose records must have timestamps set by the brokers."""
        return self.topics.inputs if self.arrival is Arrival.LOG_APPEND else ()

    def layout(self, partitions: int) -> Layout:
        """Return where the transactions are, given their topic's number of partitions."""
        return Layout(self.topics.transactions, self.partitioner, partitions)

    @property
    def merchant_delay_ms(self) -> int | None:
        """Label delay of merchant facts; None: the job keeps no facts."""
        return self.label_delay_ms if self.merchant_facts else None

    @property
    def decisive(self) -> dict[str, Any]:
        """The values of the settings in DECISIVE, and the topic of schemas if any, as JSON by name."""
        schemas = {"topics__record_schemas": self.topics.record_schemas} if self.topics.record_schemas else {}
        return {**self.model_dump(mode="json", include=set(DECISIVE)), **schemas}

    def variables(self) -> dict[str, str]:
        """Return the settings as environment variables, for a job in another process."""
        variables: dict[str, str] = {}
        for name, value in self.model_dump(mode="json").items():
            if name == "topics":
                variables |= {f"FRAUD_TOPICS__{field.upper()}": topic for field, topic in value.items()}
            else:
                variables[f"FRAUD_{name.upper()}"] = _as_variable(value)
        return variables


def _as_variable(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)
