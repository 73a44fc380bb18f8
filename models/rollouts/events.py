"""Events of the model-rollouts topic: the steps of a rollout, from `proposed` to its end."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import orjson

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
    """A model and a policy on trial beside the champion."""

    name: str
    """Unique within the rollout."""
    role: str
    """Intended role: `shadow`, only compared; `canary`, decides for a share of the cards."""
    share_bp: int
    """Intended share of the cards as a canary, basis points."""
    model: ModelRef
    policy: Policy


@dataclass(frozen=True)
class Demands:
    """What an installation demands of the people who steer rollouts; None: as before."""

    four_eyes: bool | None = None
    """Whether each event that counts as a promotion (`authority`) needs a second person."""
    operator_max_share_bp: int | None = None
    """Greatest share of the cards, basis points, that an operator may give to a challenger."""

    def replaced_by(self, later: "Demands") -> "Demands":
        """Return these demands with the values that later ones have."""
        return Demands(
            self.four_eyes if later.four_eyes is None else later.four_eyes,
            self.operator_max_share_bp
            if later.operator_max_share_bp is None
            else later.operator_max_share_bp,
        )

    def tightened_by(self, later: "Demands") -> "Demands":
        """Return the stricter value of each demand; these have both values."""
        shares = (self.operator_max_share_bp, later.operator_max_share_bp)
        return Demands(
            bool(self.four_eyes or later.four_eyes),
            min(share for share in shares if share is not None),
        )


NO_DEMANDS = Demands()


@dataclass(frozen=True)
class Event:
    """One step of a rollout: contract model-rollout.v2.

    It takes effect at the Kafka timestamp of its record. Fields that its type does not have keep their
    defaults; a field that only some types have is described as "types: meaning".
    """

    type: Type
    rollout_id: str
    """Unique name of the rollout, key of the record."""
    seq: int
    """Number of the event within the rollout, from 1; `rolled_back` may skip numbers."""
    idempotency_key: str
    """Key of the request: a repeated request with the same key changes nothing."""
    actor: str
    """User or component that requested the event."""
    reason: str
    """Free text for people."""
    created_at: int
    """Time of the request, ms since 1970-01-01 UTC."""
    approved_by: str | None = None
    """Second person: the actor of a step that may let another model decide, unless the actor has also
    proposed the rollout; else None."""
    champion: ModelRef | None = None
    """proposed: the model in force that the proposal expects; None: no model is in force."""
    any_champion: bool = False
    """proposed: whether to ignore `champion` and accept every model in force."""
    challengers: tuple[Challenger, ...] = ()
    """proposed: the challengers."""
    guards: Mapping[str, Any] | None = None
    """proposed: the guards that may stop the rollout."""
    demands: Demands = NO_DEMANDS
    """proposed: what the installation demands. Stricter values hold from the proposal on, the others from its
    promotion on."""
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
    """withdrawn: whether the withdrawal also covers transactions that arrived under the rollout and are not
    decided yet."""

    @property
    def expected_seq(self) -> int:
        """Number before `seq`: that of the rollout's previous event, unless `rolled_back` skips numbers."""
        return self.seq - 1

    @property
    def content(self) -> str:
        """SHA-256 of all fields that a repeated request must repeat: all but `created_at`."""
        return hashlib.sha256(
            orjson.dumps({**self.fields(), "created_at": 0}, option=orjson.OPT_SORT_KEYS)
        ).hexdigest()

    def to_json(self) -> bytes:
        """Serialise the event as a record's value.

        Raises:
            ContractError: a field breaks the contract.
        """
        try:
            value = orjson.dumps(self.fields())
        except (TypeError, OverflowError) as error:
            raise ContractError(
                f"not a {Contract.MODEL_ROLLOUT.value}: {error}; correct the field"
            ) from error
        validate(Contract.MODEL_ROLLOUT, json.loads(value))
        return value

    def fields(self) -> dict[str, Any]:
        """Return the fields of the record as Python values, in which lists may still be tuples."""
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
    Type.PROPOSED: ("champion", "any_champion", "challengers", "guards", "demands", "line"),
    Type.SHADOW_STARTED: (),
    Type.CANARY_SET: ("challenger", "share_bp"),
    Type.PAUSED: (),
    Type.RESUMED: (),
    Type.BREACHED: ("challenger", "guard", "verdict"),
    Type.ROLLED_BACK: (),
    Type.PROMOTED: ("challenger",),
    Type.WITHDRAWN: ("from_the_beginning",),
}
"""Fields that each type has in addition to the common fields."""


def _plain(value: Any) -> Any:
    if isinstance(value, ModelRef | Challenger | Demands):
        return asdict(value)
    return [asdict(item) for item in value] if isinstance(value, tuple) else value


def installation(
    model: ModelRef, policy: Policy, rollout_id: str, actor: str, at_ms: int, *, reason: str = "installed"
) -> tuple[Event, Event]:
    """Create two events, proposed and promoted, that make a model the champion without a trial.

    The model replaces the champion, whichever model that is.
    """
    proposed = _proposed(model, policy, rollout_id, actor, at_ms, reason)
    return proposed, _second(proposed, Type.PROMOTED, challenger=CHALLENGER)


def tightening(
    model: ModelRef, policy: Policy, demands: Demands, rollout_id: str, actor: str, at_ms: int, *, reason: str
) -> tuple[Event, Event]:
    """Create two events, proposed and rolled back, that leave nothing but the stricter of some demands.

    Args:
        model: the champion's, like `policy`: a proposal has to name some.
        demands: hold from the proposal on, as far as they are stricter.
        rollout_id: unique name.
        actor: user or component that requests it.
    """
    proposed = replace(_proposed(model, policy, rollout_id, actor, at_ms, reason), demands=demands)
    return proposed, _second(proposed, Type.ROLLED_BACK)


def _proposed(model: ModelRef, policy: Policy, rollout_id: str, actor: str, at_ms: int, reason: str) -> Event:
    only = Challenger(CHALLENGER, CANARY, 10_000, model, policy)
    return Event(
        Type.PROPOSED, rollout_id, 1, f"{rollout_id}/1"[-64:], actor, reason, at_ms,
        any_champion=True, challengers=(only,), line=model.name,
    )  # fmt: skip


def _second(first: Event, kind: Type, challenger: str = "") -> Event:
    name = first.rollout_id
    return Event(
        kind, name, 2, f"{name}/2"[-64:], first.actor, first.reason, first.created_at, challenger=challenger
    )


CHALLENGER = "challenger"
"""Name of the only challenger of an installation."""
