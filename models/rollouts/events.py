"""Events of the model-rollouts topic: proposals, shadow and canary starts, promotions, withdrawals."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson

from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef
from streaming_job.contracts import Contract, ContractError, validate

SCHEMA_VERSION = 2
SHADOW, CANARY = "shadow", "canary"
"""Intended roles of a challenger."""


class Type(StrEnum):
    """Type of a rollout event."""

    PROPOSED = "proposed"
    SHADOW_STARTED = "shadow_started"
    CANARY_SET = "canary_set"
    PAUSED = "paused"
    RESUMED = "resumed"
    BREACHED = "breached"
    ROLLED_BACK = "rolled_back"
    PROMOTED = "promoted"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Challenger:
    """A model and a policy in trial beside the champion."""

    name: str
    """Unique within the rollout."""
    role: str
    """Intended role: `shadow`, only compared; `canary`, decides for a share of the cards."""
    share_bp: int
    """Intended share of the cards as a canary, basis points."""
    model: ModelRef
    policy: Policy


@dataclass(frozen=True)
class Event:
    """One step of a rollout: contract model-rollout.v2.

    It takes effect at the Kafka timestamp of its record. Fields that its type does not have keep their
    defaults.
    """

    type: Type
    rollout_id: str
    """Unique name of the rollout, key of the record."""
    seq: int
    """Number of the event within the rollout, from 1."""
    idempotency_key: str
    """Key of the request: a repeated request with the same key changes nothing."""
    actor: str
    """User or component that requested the event."""
    reason: str
    """Free text for people."""
    created_at: int
    """Time of the request, ms since 1970-01-01 UTC."""
    approved_by: str | None = None
    """Second person, where approval by two is required."""
    champion: ModelRef | None = None
    """proposed: the model in force that the proposal expects; None: no model is in force."""
    any_champion: bool = False
    """proposed: whether to ignore `champion` and accept every model in force."""
    challengers: tuple[Challenger, ...] = ()
    """proposed: the challengers."""
    guards: Mapping[str, Any] | None = None
    """proposed: the guards that may stop the rollout."""
    line: str = ""
    """proposed: the model line, from which the salt of the membership is derived."""
    challenger: str = ""
    """canary_set, breached, promoted: name of the challenger."""
    share_bp: int = 0
    """canary_set: basis points of the cards."""
    guard: str = ""
    """breached: name of the guard."""
    verdict: Mapping[str, Any] | None = None
    """breached: the evidence."""
    from_the_beginning: bool = False
    """withdrawn: whether it also covers transactions that arrived under the rollout and are not decided."""
    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)
    """1: read from a record of the first version, which no rule of `machine` refuses."""

    @property
    def expected_seq(self) -> int:
        """Number of the rollout's event before this one; 0 for the first."""
        return self.seq - 1

    @property
    def content(self) -> str:
        """SHA-256 of all fields that a repeated request must repeat: all but `created_at`."""
        return hashlib.sha256(
            orjson.dumps({**self._fields(), "created_at": 0}, option=orjson.OPT_SORT_KEYS)
        ).hexdigest()

    def to_json(self) -> bytes:
        """Serialise the event as a record's value.

        Raises:
            ContractError: a field breaks the contract.
        """
        try:
            value = orjson.dumps(self._fields())
        except (TypeError, OverflowError) as error:
            raise ContractError(
                f"not a {Contract.MODEL_ROLLOUT.value}: {error}; correct the field"
            ) from error
        validate(Contract.MODEL_ROLLOUT, json.loads(value))
        return value

    def _fields(self) -> dict[str, Any]:
        common = {
            "schema_version": SCHEMA_VERSION,
            "type": self.type.value,
            "rollout_id": self.rollout_id,
            "seq": self.seq,
            "expected_seq": self.expected_seq,
            "idempotency_key": self.idempotency_key,
            "actor": self.actor,
            "approved_by": self.approved_by,
            "reason": self.reason,
            "created_at": self.created_at,
        }
        return {**common, **{name: _plain(getattr(self, name)) for name in FIELDS[self.type]}}


FIELDS: Mapping[Type, tuple[str, ...]] = {
    Type.PROPOSED: ("champion", "any_champion", "challengers", "guards", "line"),
    Type.SHADOW_STARTED: (),
    Type.CANARY_SET: ("challenger", "share_bp"),
    Type.PAUSED: (),
    Type.RESUMED: (),
    Type.BREACHED: ("challenger", "guard", "verdict"),
    Type.ROLLED_BACK: (),
    Type.PROMOTED: ("challenger",),
    Type.WITHDRAWN: ("from_the_beginning",),
}
"""Fields of each type beside the common ones."""


def _plain(value: Any) -> Any:
    if isinstance(value, ModelRef | Challenger):
        return asdict(value)
    return [asdict(item) for item in value] if isinstance(value, tuple) else value


def installation(
    model: ModelRef, policy: Policy, rollout_id: str, actor: str, at_ms: int, *, reason: str = "installed"
) -> tuple[Event, Event]:
    """Create the events that let a model decide for every card at once: proposed and promoted.

    They replace every model in force.

    Args:
        model: the model.
        policy: its policy.
        rollout_id: unique name.
        actor: user or component that requests it.
        at_ms: time of the request, ms since 1970-01-01 UTC.
        reason: free text for people.
    """
    only = Challenger(CHALLENGER, CANARY, 10_000, model, policy)
    proposed = Event(
        Type.PROPOSED, rollout_id, 1, f"{rollout_id}/1"[-64:], actor, reason, at_ms,
        any_champion=True, challengers=(only,), line=model.name,
    )  # fmt: skip
    promoted = Event(
        Type.PROMOTED, rollout_id, 2, f"{rollout_id}/2"[-64:], actor, reason, at_ms, challenger=CHALLENGER
    )
    return proposed, promoted


CHALLENGER = "challenger"
"""Name of the only challenger of an installation."""


def withdrawal(
    rollout_id: str, seq: int, actor: str, reason: str, at_ms: int, *, from_the_beginning: bool = False
) -> Event:
    """Create the event that withdraws a promotion.

    Args:
        rollout_id: the promoted rollout.
        seq: seq of the rollout's newest event, plus one.
        actor: user or component that requests it.
        reason: free text for people.
        at_ms: time of the request, ms since 1970-01-01 UTC.
        from_the_beginning: whether the withdrawal also covers transactions that arrived under the rollout and
            are not decided yet.
    """
    return Event(
        Type.WITHDRAWN, rollout_id, seq, f"{rollout_id}/{seq}"[-64:], actor, reason, at_ms,
        from_the_beginning=from_the_beginning,
    )  # fmt: skip


def read(value: bytes) -> tuple[Event, ...]:
    """Read a record's value; unknown fields are ignored.

    Returns:
        One event; two for a rollout of the first version: proposed and promoted.

    Raises:
        ContractError: the record is neither a model-rollout.v2 nor of the first version.
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
            orjson.dumps(event._fields())
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
