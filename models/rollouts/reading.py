"""Reading of rollout events from the values of records."""

import json
from collections.abc import Mapping
from typing import Any

import orjson

from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import CANARY, FIELDS, Challenger, Demands, Event, Type
from streaming_job.contracts import Contract, ContractError, validate

_NAME = Contract.MODEL_ROLLOUT.value


def read(value: bytes) -> Event:
    """Read a record's value; unknown fields are ignored.

    Raises:
        ContractError: the record does not follow model-rollout.v2, for example because it has another
            `schema_version`.
    """
    try:
        record: Any = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not a {_NAME}: no JSON: {error}; correct the producer") from error
    validate(Contract.MODEL_ROLLOUT, record)
    try:
        event = _event(record)
        # refuse what only Python's JSON accepts: lone surrogates, integers beyond 64 bits; NaN, infinity
        orjson.dumps(event.fields())
        json.dumps(event.fields(), allow_nan=False)
    except (ModelError, TypeError, ValueError, OverflowError) as error:
        raise ContractError(f"not a {_NAME}: {error}; correct the producer") from error
    return event


def _event(record: dict[str, Any]) -> Event:
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
    return Event(
        kind, record["rollout_id"], int(record["seq"]), record["idempotency_key"], record["actor"],
        record["reason"], int(record["created_at"]), record["approved_by"], **own,
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
