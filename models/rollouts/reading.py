"""Reading of rollout events from the values of records, in both versions of the contract."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import (
    CANARY,
    FIELDS,
    Challenger,
    Demands,
    Event,
    Type,
    installation,
    withdrawal,
)
from streaming_job.contracts import Contract, ContractError, validate


def read(value: bytes) -> tuple[Event, ...]:
    """Read a record's value; unknown fields are ignored.

    Returns:
        One event; two for a rollout of the first version: proposed and promoted.

    Raises:
        ContractError: the record follows neither model-rollout.v2 nor the first version.
    """
    try:
        record: Any = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not a model-rollout.v2: no JSON: {error}; correct the producer") from error
    contract, parse = _version_of(record)
    validate(contract, record)
    try:
        events = parse(record)
        # refuse values that only Python's JSON accepts: lone surrogates, integers beyond 64 bits
        for event in events:
            orjson.dumps(event.fields())
    except (ModelError, TypeError, OverflowError) as error:
        raise ContractError(f"not a {contract.value}: {error}; correct the producer") from error
    return events


def _version_of(record: Any) -> tuple[Contract, Callable[[dict[str, Any]], tuple[Event, ...]]]:
    if isinstance(record, dict) and "withdraws" in record:
        return Contract.MODEL_WITHDRAWAL_V1, _withdrawal_v1
    if isinstance(record, dict) and record.get("schema_version") == 1:
        return Contract.MODEL_ROLLOUT_V1, _rollout_v1
    return Contract.MODEL_ROLLOUT, _event


def _event(record: dict[str, Any]) -> tuple[Event, ...]:
    kind = Type(record["type"])
    if record["expected_seq"] != record["seq"] - 1:
        raise ModelError(f"expected_seq {record['expected_seq']} is not seq {record['seq']} minus one")
    own: dict[str, Any] = {name: record[name] for name in FIELDS[kind] if name in record}
    if kind is Type.PROPOSED:
        champion = own["champion"]
        own["champion"] = None if champion is None else ModelRef.from_json(champion)
        own["challengers"] = tuple(_challenger(challenger) for challenger in own["challengers"])
        _require_distinct(own["challengers"])
        demands = own.get("demands", {})
        share = demands.get("operator_max_share_bp")
        own["demands"] = Demands(demands.get("four_eyes"), None if share is None else int(share))
    if "share_bp" in own:
        own["share_bp"] = int(own["share_bp"])
    return (
        Event(
            kind, record["rollout_id"], int(record["seq"]), record["idempotency_key"], record["actor"],
            record["reason"], int(record["created_at"]), record["approved_by"], **own,
        ),
    )  # fmt: skip


def _challenger(fields: Mapping[str, Any]) -> Challenger:
    return Challenger(
        fields["name"],
        fields["role"],
        int(fields["share_bp"]),
        ModelRef.from_json(fields["model"]),
        Policy.from_json(fields["policy"]),
    )


def _require_distinct(challengers: tuple[Challenger, ...]) -> None:
    if len({challenger.name for challenger in challengers}) < len(challengers):
        raise ModelError("two challengers have the same name")
    if sum(challenger.role == CANARY for challenger in challengers) > 1:
        raise ModelError("more than one challenger has the role canary")


def _rollout_v1(record: dict[str, Any]) -> tuple[Event, ...]:
    events = installation(
        ModelRef.from_json(record["model"]),
        Policy.from_json(record["policy"]),
        record["rollout_id"],
        record["created_by"],
        int(record["created_at"]),
        reason="",
    )
    return tuple(_of_version_1(event) for event in events)


def _withdrawal_v1(record: dict[str, Any]) -> tuple[Event, ...]:
    event = withdrawal(
        record["withdraws"], 3, record["created_by"], record["reason"], int(record["created_at"]),
        from_the_beginning=record["from_the_beginning"],
    )  # fmt: skip
    return (_of_version_1(event),)


def _of_version_1(event: Event) -> Event:
    return replace(event, schema_version=1)
