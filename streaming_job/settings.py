"""Settings of the job, from the environment (`FRAUD_...`) or from code."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming_job.contracts.topics import Topics

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
    key_groups: Annotated[int, Field(ge=1, le=4096)] = 2
    """Number of state partitions; fixed by the first start (the checkpoint remembers it)."""
    max_records_per_batch: Annotated[int, Field(ge=1)] = 400_000
    """Upper bound of transactions in one micro-batch."""
    allowed_lateness_ms: Annotated[int, Field(ge=0)] = 7 * DAY_MS
    """Older transactions (event time against arrival) become dead letters: too_late."""
    allowed_skew_ms: Annotated[int, Field(ge=0)] = 5 * MINUTE_MS
    """Transactions further ahead of their arrival become dead letters: future_event_time."""
    wait_for_snapshot_s: Annotated[int, Field(ge=0)] = 600
    """At a first start: how long Debezium's first snapshot of the profiles may take; 0 does not wait."""
    transaction_timeout_ms: Annotated[int, Field(ge=10_000, le=900_000)] = 120_000
    """The brokers abort a transaction that is open for longer: far above what writing a batch takes."""
    spark: dict[str, str] = {}
    """More Spark settings, for example spark.executor.instances; they win over the job's own."""
    driver_memory: str = "1g"
    """Heap of the driver's JVM."""
    driver_java_options: str = ""
    """More options of the driver's JVM, as on a command line; in `spark` they would replace the job's own."""
    ui_port: int = 4040
    """Port of the Spark UI; 0 switches the UI off."""

    def variables(self) -> dict[str, str]:
        """The same as environment variables, for a job in another process."""
        found: dict[str, str] = {}
        for name, value in self.model_dump(mode="json").items():
            if name == "topics":
                found |= {f"FRAUD_TOPICS__{field.upper()}": topic for field, topic in value.items()}
            else:
                found[f"FRAUD_{name.upper()}"] = json.dumps(value) if isinstance(value, dict) else str(value)
        return found
