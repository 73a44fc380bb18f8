"""Settings of the sidecar, from the environment (`FRAUD_...`, as for the job) or from code."""

from pathlib import Path
from typing import Annotated, Any

from confluent_kafka import KafkaException
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming_job.contracts.topics import Topics


class ServiceSettings(BaseSettings):
    """What the sidecar watches, and when it calls it ready."""

    model_config = SettingsConfigDict(env_prefix="FRAUD_", env_nested_delimiter="__", extra="forbid")

    job_id: str = "card-fraud"
    """The job: its consumer group and the key of its progress."""
    bootstrap_servers: str
    """Kafka brokers, host:port[,host:port]."""
    kafka: dict[str, str] = {}
    """More Kafka client settings (librdkafka names)."""
    topics: Topics = Topics()
    offsets_interval_s: Annotated[float, Field(gt=0)] = 2.0
    """How often the broker is asked for offsets."""
    max_progress_age_s: Annotated[float, Field(gt=0)] = 60.0
    """A key group that has left transactions waiting for longer, and taken none, is not ready."""
    max_silence_s: Annotated[float, Field(gt=0)] = 30.0
    """A key group whose newest progress is older is not ready; an idle one writes it every 10 s."""
    limit_floor_s: Annotated[float, Field(gt=0)] = 10.0
    """Least limit of a verdict, however short the times are that it is learned from; its ceiling is
    `max_progress_age_s`."""
    limit_ceiling_s: Annotated[float, Field(gt=0)] = 600.0
    """Greatest age of the feed's heartbeat and of an epoch, whatever was measured."""
    verdict_window_s: Annotated[float, Field(gt=0)] = 300.0
    """How far the looks go back that a verdict is made of."""
    idle_after_s: Annotated[float, Field(gt=0)] = 60.0
    """A partition in which nothing waits, and to which nothing has come for so long, is idle."""
    runbook: str = "docs/runbook.md"
    """Address of the runbook; a reason code is an anchor in it."""

    tokens_file: Path | None = None
    """Who may call (`fraud tokens`); without it processes of this machine, as admin."""
    tls_cert: Path | None = None
    """PEM file of the certificate and its chain."""
    tls_key: Path | None = None
    """PEM file of its private key, without a password."""
    insecure_http: bool = False
    """Listen beyond this machine without TLS, because a proxy does it."""
    rate_per_s: Annotated[float, Field(ge=0)] = 250.0
    """Requests a second that a caller may send, on average; 0: no limit."""
    rate_burst: Annotated[int, Field(ge=1)] = 500
    """Requests that a caller may send at once."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 64 * 1024
    """Size of a request's body at most."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics whose lag is watched."""
        return (self.topics.transactions, *self.topics.tables)

    @property
    def feed(self) -> dict[str, str]:
        """The topics that show whether the feed of profiles lives, by signal."""
        return {"change": self.topics.profiles, "heartbeat": self.topics.heartbeats}

    def client(self, **more: Any) -> dict[str, Any]:
        """Configuration of a Kafka client: ours, then the operator's."""
        # what fails is shown by /readyz and in the metrics, not on stderr by a C library
        return {"log_level": 0, **more, **self.kafka, "bootstrap.servers": self.bootstrap_servers}


def say(error: KafkaException | TimeoutError) -> str:
    """A Kafka error in words."""
    cause = error.args[0] if error.args else "no answer in time"
    return str(cause.str() if hasattr(cause, "str") else cause)
