"""What callers ask of the desk, and what it answers: the same for HTTP, the command line and the guards."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type
from models.rollouts.machine import Phase

GUARD = "guard"
"""Actor of the events that guards write."""


@dataclass(frozen=True)
class Actor:
    """Who asks."""

    name: str
    role: str = "admin"
    origin: str = "local"
    """Where the question came from: an address, or the command line's machine."""


@dataclass(frozen=True)
class Draft:
    """A challenger as a proposal names it."""

    name: str
    """Unique within the rollout."""
    role: str
    """shadow or canary: what it is meant to become."""
    share_bp: int
    """Of the cards, as a canary; basis points."""
    model: str
    """NAME/VERSION in the registry."""
    policy: Policy


@dataclass(frozen=True)
class Proposal:
    """A new rollout."""

    challengers: tuple[Draft, ...]
    reason: str
    key: str
    """Idempotency key: the same proposal again is answered as the first time."""
    guards: Mapping[str, Any] | None = None
    """The object of the event; None: nothing stops the rollout but people."""
    rollout_id: str = ""
    """Unique name; default: model, version, time."""
    line: str = ""
    """Model line, whose cards stay members from one rollout to the next; default: the model's name."""
    at_once: bool = False
    """Whether the only challenger is promoted in the same transaction."""


@dataclass(frozen=True)
class Step:
    """One more event of a rollout."""

    rollout_id: str
    type: Type
    reason: str
    key: str
    """Idempotency key: the same step again is answered as the first time."""
    expected_seq: int | None = None
    """The rollout's seq as the caller knows it; None: whatever it is, a rollback needs none."""
    challenger: str = ""
    """canary_set, promoted: its name; default: the only one, or the one that is meant to be a canary."""
    share_bp: int = 0
    """canary_set: basis points; default: what the proposal said."""
    from_the_beginning: bool = False
    """withdrawn."""


@dataclass(frozen=True)
class Stop:
    """What a guard's watch asks: an end of the rollout, with the evidence."""

    rollout_id: str
    seq: int
    """Of the rollout when the evidence was looked at."""
    reason: str
    challenger: str = ""
    """Of a breach; empty when the deadline has passed."""
    guard: str = ""
    """Of a breach."""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """Of a breach: the evidence."""


@dataclass(frozen=True)
class Receipt:
    """An answer of the desk: what stands on the log now."""

    rollout_id: str
    seq: int
    """Of the rollout after it."""
    phase: Phase
    types: tuple[Type, ...]
    """Of the events."""
    offsets: tuple[int, ...]
    """On model-rollouts."""
    repeated: bool = False
    """Whether an earlier request of the same key had written them."""


Refs = Mapping[str, ModelRef]
"""NAME/VERSION -> what the registry has."""
