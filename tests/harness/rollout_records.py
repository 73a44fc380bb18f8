"""Events of the model-rollouts topic."""

from collections.abc import Mapping
from typing import Any

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import FIELDS, Challenger, Event, Type, installation

AT = 1_780_000_200_000


def installed(name: str, model: ModelRef, policy: Policy) -> tuple[Event, Event]:
    """The two events that make a model the champion without a trial."""
    return installation(model, policy, name, "test", AT)


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
