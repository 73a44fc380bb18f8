"""Rollouts: events that say from when on which model and policy decide."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from models.errors import ModelError
from models.policy import SCORE, Policy
from models.registry import ModelRef
from streaming_job.contracts import Contract, ContractError, validate

CHAMPION = "champion"
SCHEMA_VERSION = 1
DELIVERY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Rollout:
    """One event of the model-rollouts topic."""

    rollout_id: str
    """Unique name, key of the record."""
    model: ModelRef
    """What scores."""
    policy: Policy
    """What makes an alert of a score."""
    created_by: str
    """Who asked for it."""
    created_at: int
    """When it was asked for, ms since 1970-01-01 UTC; it takes effect at the record's Kafka timestamp."""
    role: str = CHAMPION
    """champion: decides for every card."""

    def to_json(self) -> bytes:
        """The record's value; keeps contract model-rollout.v1.

        Raises:
            ContractError: a field breaks the contract.
        """
        record = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        validate(Contract.MODEL_ROLLOUT, record)
        return json.dumps(record, separators=(",", ":")).encode()

    @staticmethod
    def from_json(value: bytes) -> "Rollout":
        """Read a record's value; unknown fields are ignored.

        Raises:
            ContractError: not a model-rollout.v1.
        """
        try:
            record: Any = json.loads(value)
        except ValueError as error:
            raise ContractError(f"not a model-rollout.v1: no JSON: {error}; mend the producer") from error
        validate(Contract.MODEL_ROLLOUT, record)
        model, policy = record["model"], record["policy"]
        return Rollout(
            rollout_id=record["rollout_id"],
            model=ModelRef(**{name: model[name] for name in ModelRef.__dataclass_fields__}),
            policy=Policy(
                float(policy["threshold"]), int(policy["max_count_5m"]), policy.get("missing_profile", SCORE)
            ),
            created_by=record["created_by"],
            created_at=int(record["created_at"]),
            role=record["role"],
        )


def publish(
    rollout: Rollout,
    bootstrap_servers: str,
    topic: str,
    kafka: dict[str, str] | None = None,
    *,
    timestamp_ms: int | None = None,
) -> None:
    """Write a rollout and wait until every in-sync replica has it.

    Args:
        rollout: the event.
        bootstrap_servers: Kafka brokers.
        topic: the model-rollouts topic.
        kafka: more client settings (librdkafka names).
        timestamp_ms: the record's timestamp, for replays into a CreateTime topic; default: now.

    Raises:
        ModelError: no acknowledgement in time.
    """
    from confluent_kafka import KafkaException, Producer

    failures: list[str] = []

    def delivered(error: object, _record: object) -> None:
        if error is not None:
            failures.append(str(error))

    place = f"topic {topic} at {bootstrap_servers}"
    try:
        producer = Producer(
            {
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
                "log_level": 2,  # what fails is raised below
                **(kafka or {}),
                "bootstrap.servers": bootstrap_servers,
            }
        )
        producer.produce(
            topic,
            key=rollout.rollout_id,
            value=rollout.to_json(),
            on_delivery=delivered,
            timestamp=timestamp_ms or 0,  # 0: librdkafka's word for now
        )
        waiting = producer.flush(DELIVERY_TIMEOUT_S + 5.0)
    except KafkaException as error:
        raise ModelError(f"the rollout cannot be written to {place}: {error}; check the settings") from error
    if waiting or failures:
        why = failures[0] if failures else "no answer"
        raise ModelError(
            f"the rollout was not written to {place}: {why}; check the brokers, then promote again"
        )
