"""The part of the job's settings that `fraud dead-letters` needs."""

from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming_job.contracts.topics import Names, Topics
from streaming_job.log.partitioner import Partitioner


class LetterSettings(BaseSettings):
    """The settings from the environment (`FRAUD_...`, as for the job) or from code."""

    model_config = SettingsConfigDict(env_prefix="FRAUD_", env_nested_delimiter="__", extra="ignore")

    bootstrap_servers: str
    """Kafka brokers, host:port[,host:port]."""
    kafka: dict[str, str] = {}
    """More Kafka client settings (librdkafka names)."""
    topics: Topics = Topics()
    partitioner: Partitioner = Partitioner.MURMUR2
    """Partitioner of the producers of `transactions`, by which a replay chooses the partition of a card."""
    retired_transactions: Names = ()
    """Topics that the job's transactions have left; their records are sent to `transactions`."""
    refuse_card_numbers: bool = True
    """Whether the job refuses a card_id that has the form of a card number."""
