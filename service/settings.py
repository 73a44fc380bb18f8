"""Settings of the sidecar, from the environment (`FRAUD_...`, as for the job) or from code."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.rollouts.events import Demands
from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import Partitioner


class ServiceSettings(BaseSettings):
    """Settings of the sidecar: the watched job, limits, TLS and tokens."""

    model_config = SettingsConfigDict(env_prefix="FRAUD_", env_nested_delimiter="__", extra="forbid")

    job_id: str = "card-fraud"
    """Name of the job: its consumer group, and the key of its progress records."""
    bootstrap_servers: str
    """Kafka brokers, host:port[,host:port]."""
    kafka: dict[str, str] = {}
    """More Kafka client settings (librdkafka names)."""
    topics: Topics = Topics()
    """Names of the topics."""
    work_dir: Path | None = None
    """Local directory of the counts of alerts by their labels, and of the progress of replays, if they have
    the same; without it, a restart counts anew what the topics still hold."""
    offsets_interval_s: Annotated[float, Field(gt=0)] = 2.0
    """Interval between two queries of offsets at the broker."""
    max_progress_age_s: Annotated[float, Field(gt=0)] = 60.0
    """The sidecar is not ready once transactions wait longer than this while their key group decides none, or
    records wait longer than this for a producer to end its transaction."""
    max_silence_s: Annotated[float, Field(gt=0)] = 30.0
    """The sidecar is not ready if a key group's newest progress record is older than this; an idle group
    writes one every 10 s."""
    limit_floor_s: Annotated[float, Field(gt=0)] = 10.0
    """Lower bound of each limit that the sidecar learns from measured times; that of epochs is 30 s at least.
    The upper bound is `limit_ceiling_s` for heartbeats and epochs, and `max_progress_age_s` for others."""
    limit_ceiling_s: Annotated[float, Field(gt=0)] = 600.0
    """Upper bound of the learned limits for the age of the profile feed's heartbeat and of an epoch."""
    verdict_window_s: Annotated[float, Field(gt=0)] = 300.0
    """Length of the sliding window of offset queries on which a partition's verdict is based."""
    idle_after_s: Annotated[float, Field(gt=0)] = 60.0
    """Time without new or waiting records after which a partition is idle."""
    runbook: str = "docs/runbook.md"
    """Address of the runbook, in which each reason code of the sidecar is an anchor."""
    mlflow_tracking_uri: str = ""
    """Address of the model registry; empty: the sidecar can steer rollouts, but not propose any."""
    archive: str = ""
    """Directory or URI of the archive (`fraud archive run`), for backtests; they need the job's settings,
    too. Empty: no backtests."""
    four_eyes: bool | None = None
    """Whether each step that counts as a promotion needs a second person, who has not proposed the rollout.
    The next proposal writes the value into the log, where it binds everybody; unset: as in the log."""
    operator_max_share_bp: Annotated[int | None, Field(ge=0, le=10_000)] = None
    """Greatest share of the cards, basis points, that an operator may give to a challenger; a greater one
    counts as a promotion. Written into the log like `four_eyes`; unset: as in the log, at first 1000."""
    partitioner: Partitioner = Partitioner.MURMUR2
    """Partitioner of the transactions' producers, as in the job's settings; used while no progress of the job
    names it."""
    tokens_file: Path | None = None
    """File of the callers' tokens (`fraud tokens`); without it, processes of this machine are served as
    admin."""
    tls_cert: Path | None = None
    """PEM file of the certificate and its chain."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key, without a password."""
    insecure_http: bool = False
    """Whether to listen beyond this machine without TLS, because a proxy terminates TLS."""
    rate_per_s: Annotated[float, Field(ge=0)] = 250.0
    """Average requests per second that a caller may send; 0: no limit."""
    rate_burst: Annotated[int, Field(ge=1)] = 500
    """Requests that a caller may send at once."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 256 * 1024
    """Largest request body, bytes; the default holds 500 labels, as many as a request may have."""

    @property
    def demands(self) -> Demands:
        """What the installation demands of those who steer rollouts."""
        return Demands(self.four_eyes, self.operator_max_share_bp)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that every job reads; if it reads labels and facts, their topics are watched, too."""
        return (self.topics.transactions, *self.topics.tables)

    @property
    def feed(self) -> dict[str, str]:
        """Signal -> topic whose newest record shows that the profile feed is alive."""
        return {"change": self.topics.profiles, "heartbeat": self.topics.heartbeats}
