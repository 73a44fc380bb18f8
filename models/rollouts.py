"""Events of the model-rollouts topic: from when on which model and policy decide, and what is taken back."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from models.errors import ModelError
from models.policy import SCORE, Policy
from models.registry import ModelRef
from streaming_job.contracts import Contract, ContractError, validate

CHAMPION = "champion"
SCHEMA_VERSION = 1
DELIVERY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Rollout:
    """A model and a policy that are to decide: contract model-rollout.v1."""

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
        """The record's value.

        Raises:
            ContractError: a field breaks the contract.
        """
        return _encoded(Contract.MODEL_ROLLOUT, asdict(self))


@dataclass(frozen=True)
class Withdrawal:
    """Takes back the rollouts of a name that lie before it: contract model-withdrawal.v1."""

    withdraws: str
    """rollout_id, key of the record."""
    from_the_beginning: bool
    """Whether the rollout is also passed over for what arrived under it and has not been decided yet."""
    reason: str
    """For a person."""
    created_by: str
    """Who asked for it."""
    created_at: int
    """When it was asked for, ms since 1970-01-01 UTC; it takes effect at the record's Kafka timestamp."""

    @property
    def rollout_id(self) -> str:
        """What is taken back."""
        return self.withdraws

    def to_json(self) -> bytes:
        """The record's value.

        Raises:
            ContractError: a field breaks the contract.
        """
        return _encoded(Contract.MODEL_WITHDRAWAL, asdict(self))


Event = Rollout | Withdrawal


def read(value: bytes) -> Event:
    """Read a record's value; unknown fields are ignored.

    Raises:
        ContractError: neither a model-rollout.v1 nor a model-withdrawal.v1.
    """
    try:
        record: Any = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not a model-rollout.v1: no JSON: {error}; mend the producer") from error
    contract, made = Contract.MODEL_ROLLOUT, _rollout
    if isinstance(record, dict) and "withdraws" in record:
        contract, made = Contract.MODEL_WITHDRAWAL, _withdrawal
    validate(contract, record)
    try:
        event = made(record)
        # what JSON takes and nothing else does: lone surrogates, integers beyond 64 bits
        orjson.dumps(asdict(event))
    except (ModelError, TypeError, OverflowError) as error:
        raise ContractError(f"not a {contract.value}: {error}; mend the producer") from error
    return event


def _rollout(record: dict[str, Any]) -> Event:
    policy = record["policy"]
    return Rollout(
        rollout_id=record["rollout_id"],
        model=ModelRef.from_json(record["model"]),
        policy=Policy(
            float(policy["threshold"]), int(policy["max_count_5m"]), policy.get("missing_profile", SCORE)
        ),
        created_by=record["created_by"],
        created_at=int(record["created_at"]),
        role=record["role"],
    )


def _withdrawal(record: dict[str, Any]) -> Event:
    fields = {name: record[name] for name in Withdrawal.__dataclass_fields__}
    return Withdrawal(**{**fields, "created_at": int(record["created_at"])})


def _encoded(contract: Contract, fields: dict[str, Any]) -> bytes:
    try:
        value = orjson.dumps({"schema_version": SCHEMA_VERSION, **fields})
    except TypeError as error:
        raise ContractError(f"not a {contract.value}: {error}; correct the field") from error
    validate(contract, json.loads(value))
    return value


def publish(
    event: Event,
    bootstrap_servers: str,
    topic: str,
    kafka: dict[str, str] | None = None,
    *,
    timestamp_ms: int | None = None,
) -> None:
    """Write an event and wait until every in-sync replica has it.

    Args:
        event: a rollout, or a withdrawal.
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
            key=event.rollout_id,
            value=event.to_json(),
            on_delivery=delivered,
            timestamp=timestamp_ms or 0,  # 0: librdkafka's word for now
        )
        waiting = producer.flush(DELIVERY_TIMEOUT_S + 5.0)
    except KafkaException as error:
        raise ModelError(f"the event cannot be written to {place}: {error}; check the settings") from error
    if waiting or failures:
        why = failures[0] if failures else "no answer"
        raise ModelError(
            f"the event was not written to {place}: {why}; check the brokers, then repeat the command"
        )
