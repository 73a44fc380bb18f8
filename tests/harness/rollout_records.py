"""Records of the model-rollouts topic: events, and records by the first contracts, which are still read."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import FIELDS, Challenger, Event, Type

AT = 1_780_000_200_000


def rollout_v1(name: str, model: ModelRef, policy: Policy) -> bytes:
    """A model-rollout.v1: promotes a model."""
    output = {key: getattr(policy, key) for key in ("threshold", "max_count_5m", "missing_profile")}
    fields = {
        "schema_version": 1, "rollout_id": name, "model": asdict(model), "policy": output,
        "created_by": "test", "created_at": AT, "role": "champion",
    }  # fmt: skip
    return json.dumps(fields, separators=(",", ":")).encode()


def withdrawal_v1(name: str, *, from_the_beginning: bool = False) -> bytes:
    """A model-withdrawal.v1: withdraws the rollouts of a name."""
    fields = {
        "schema_version": 1, "withdraws": name, "from_the_beginning": from_the_beginning, "reason": "because",
        "created_by": "test", "created_at": AT,
    }  # fmt: skip
    return json.dumps(fields, separators=(",", ":")).encode()


def event(kind: Type, name: str, seq: int, **fields: Any) -> Event:
    """An event of a rollout.

    By default, if its kind has the field: challenger `b`, a tenth of the cards, guard `failures`, no verdict.
    """
    own: Mapping[str, Any] = {"challenger": "b", "share_bp": 1_000, "guard": "failures", "verdict": {}}
    defaults = {key: value for key, value in own.items() if key in FIELDS[kind]}
    key = fields.pop("idempotency_key", f"{name}-{seq}-{kind}")
    return Event(kind, name, seq, key, "test", "because", AT, **{**defaults, **fields})


def proposed(name: str, *challengers: Challenger, **fields: Any) -> Event:
    """A proposal; without `champion` it accepts any model in force."""
    given = {"any_champion": "champion" not in fields, "line": "card-fraud", **fields}
    return event(Type.PROPOSED, name, 1, challengers=challengers, **given)


def challenger(
    model: ModelRef, name: str = "b", role: str = "canary", policy: Policy | None = None
) -> Challenger:
    """A challenger; a canary is for a tenth of the cards."""
    return Challenger(name, role, 1_000 if role == "canary" else 0, model, policy or Policy(0.5, 10))
