"""Decoder of rollout events.

Plain `if`s that follow the text of the contract, written independently of the job's decoder. Every violation
has the same reason in its dead letter, so kinds of violations are not distinguished.
"""

import json
import re
from typing import Any, NamedTuple

import orjson

from loadtests.oracle import policies
from loadtests.oracle.fields import require, text, whole
from models.errors import ModelError
from models.policy import Policy
from models.registry import ModelRef

MOST_TIME = 99_999_999_999_999
MOST_CHALLENGERS = 4
SCHEMA_VERSION = 2
TYPES = {
    "proposed", "shadow_started", "canary_set", "paused", "resumed", "breached", "rolled_back", "promoted",
    "withdrawn",
}  # fmt: skip
_DIGEST = re.compile("[0-9a-f]{64}")
_FEATURE = re.compile("[^:,]+:[0-9]+")


class BrokenError(Exception):
    """The record breaks its contract."""


class Candidate(NamedTuple):
    """A challenger as proposed."""

    name: str
    role: str
    """Intended role: shadow or canary."""
    share_bp: int
    model: ModelRef
    policy: Policy


class Event(NamedTuple):
    """One step of a rollout, without its time; a repetition must be equal in every field."""

    type: str
    rollout_id: str
    seq: int
    """Number within the rollout, from 1."""
    key: str
    """Idempotency key of the request."""
    attribution: tuple[str, str | None, str]
    """Actor, approver and reason."""
    champion: str | None = None
    """Of `proposed`: digest of the champion in force, None without one."""
    any_champion: bool = False
    """Of `proposed`: whether the proposal is valid under any champion."""
    candidates: tuple[Candidate, ...] = ()
    guards: Any = None
    line: str = ""
    challenger: str = ""
    """Of `canary_set`, `breached` and `promoted`: name of the challenger."""
    share_bp: int = 0
    """Of `canary_set`: share in basis points."""
    evidence: Any = None
    """Of `breached`: guard and its verdict."""
    from_the_beginning: bool = False
    """Of `withdrawn`: whether it also applies to undecided transactions that arrived before it."""
    demands: tuple[bool | None, int | None] = (None, None)
    """Of `proposed`: are two people needed? And the greatest share of an operator; None: as before."""


def read(value: bytes) -> Event:
    """Decode the event of a record.

    Raises:
        BrokenError: the record breaks its contract.
    """
    try:
        row = json.loads(value.decode())
        require(isinstance(row, dict))
        event = _event(row)
        # refuse lone surrogates, integers over 64 bits and numbers that are none: Python reads them, but no
        # output can contain them
        orjson.dumps(_written(event))
        json.dumps(_written(event), allow_nan=False)
    except (ValueError, TypeError, OverflowError, RecursionError, KeyError, ModelError) as fault:
        raise BrokenError(str(fault)) from fault
    return event


def _written(event: Event) -> list[Any]:
    candidates = [
        (*candidate[:3], *vars(candidate.model).values(), *vars(candidate.policy).values())
        for candidate in event.candidates
    ]
    return [*event._replace(candidates=()), candidates]


def _event(row: dict[str, Any]) -> Event:
    version = row["schema_version"]
    require(not isinstance(version, bool) and version == SCHEMA_VERSION)
    require(isinstance(row["type"], str) and row["type"] in TYPES)
    kind, seq = row["type"], whole(row["seq"], 1)
    require(whole(row["expected_seq"], 0) == seq - 1)
    approved_by = row["approved_by"]
    attribution = (
        text(row["actor"], 1, 200),
        approved_by if approved_by is None else text(approved_by, 1, 200),
        text(row["reason"], 0, 1000),
    )
    whole(row["created_at"], 0, MOST_TIME)
    event = Event(kind, text(row["rollout_id"]), seq, text(row["idempotency_key"]), attribution)
    # every field present is checked; only those of the event's type count
    fields = _fields(row)
    fields_of_type = {
        "proposed": ("champion", "candidates", "guards", "line"),
        "canary_set": ("challenger", "share_bp"),
        "breached": ("challenger", "evidence"),
        "promoted": ("challenger",),
        "withdrawn": ("from_the_beginning",),
    }.get(kind, ())
    event = event._replace(**{name: fields[name] for name in fields_of_type})
    if kind == "proposed":
        event = event._replace(
            any_champion=fields.get("any_champion", False), demands=fields.get("demands", (None, None))
        )
        names = [candidate.name for candidate in event.candidates]
        require(len(set(names)) == len(names))
        require(sum(candidate.role == "canary" for candidate in event.candidates) <= 1)
    return event


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "champion" in row:
        fields["champion"] = None if row["champion"] is None else _model(row["champion"]).digest
    if "challengers" in row:
        challengers = row["challengers"]
        require(isinstance(challengers, list) and 1 <= len(challengers) <= MOST_CHALLENGERS)
        fields["candidates"] = tuple(map(_candidate, challengers))
    if "guards" in row:
        require(row["guards"] is None or isinstance(row["guards"], dict))
        fields["guards"] = row["guards"]
    for name in ("line", "challenger", "guard"):
        if name in row:
            fields[name] = text(row[name])
    if "share_bp" in row:
        fields["share_bp"] = whole(row["share_bp"], 1, 10_000)
    if "demands" in row:
        demands = row["demands"]
        require(isinstance(demands, dict))
        both, share = demands.get("four_eyes"), demands.get("operator_max_share_bp")
        require(both is None or isinstance(both, bool))
        fields["demands"] = both, None if share is None else whole(share, 0, 10_000)
    if "verdict" in row:
        require(isinstance(row["verdict"], dict))
    if "guard" in row and "verdict" in row:
        fields["evidence"] = (fields["guard"], row["verdict"])
    for name in ("any_champion", "from_the_beginning"):
        if name in row:
            require(isinstance(row[name], bool))
            fields[name] = row[name]
    return fields


def _candidate(row: Any) -> Candidate:
    require(isinstance(row, dict) and row["role"] in ("shadow", "canary"))
    return Candidate(
        text(row["name"]), row["role"], whole(row["share_bp"], 0, 10_000), _model(row["model"]),
        policies.read(row["policy"]),
    )  # fmt: skip


def _model(row: Any) -> ModelRef:
    require(isinstance(row, dict))
    texts = {name: row[name] for name in ("name", "version", "uri", "digest")}
    features = row["features"]
    require(all(isinstance(text, str) for text in texts.values()))
    require(_DIGEST.fullmatch(texts["digest"]) is not None)
    require(isinstance(features, list) and len(features) > 0)
    require(all(isinstance(feature, str) and _FEATURE.fullmatch(feature) for feature in features))
    require(len(set(features)) == len(features))
    return ModelRef(**texts, features=tuple(features))
