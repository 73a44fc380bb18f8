"""Requests and answers of the desk, the same for HTTP, the command line and the guards."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import Type
from models.rollouts.state import Phase

ADMIN = "admin"
"""Role of those who may promote."""
GUARD = "guard"
"""Actor of the events that guards write."""


@dataclass(frozen=True)
class Actor:
    """The caller of the desk."""

    name: str
    role: str = ADMIN
    origin: str = "local"
    """Origin of the request: the client's address, the command line's host or, for guards, the job's id."""


@dataclass(frozen=True)
class Draft:
    """A challenger in a proposal."""

    name: str
    """Unique within the rollout."""
    role: str
    """Intended role: shadow or canary."""
    share_bp: int
    """Intended share of the cards as a canary, basis points."""
    model: str
    """NAME/VERSION in the registry."""
    policy: Policy


@dataclass(frozen=True)
class Proposal:
    """A new rollout."""

    challengers: tuple[Draft, ...]
    reason: str
    key: str
    """Idempotency key: a repeated proposal writes nothing, and gets a receipt for the first one's events."""
    guards: Mapping[str, Any] | None = None
    """Guards as the caller gives them; None: the default guards."""
    rollout_id: str = ""
    """Unique name; default: model, version, time."""
    line: str = ""
    """Model line, whose cards stay members from one rollout to the next; default: name of the first model."""
    at_once: bool = False
    """Whether the only challenger is promoted in the Kafka transaction of the proposal."""


@dataclass(frozen=True)
class Step:
    """One more event of a rollout."""

    rollout_id: str
    type: Type
    reason: str
    key: str
    """Idempotency key: a repeated step writes nothing, and gets a receipt for the first one's events."""
    expected_seq: int | None = None
    """The seq (number of the newest event) that the rollout must have; None: any. A rollback ignores it."""
    challenger: str = ""
    """canary_set, promoted: name of the challenger; default: the only one, or the one with role canary."""
    share_bp: int = 0
    """canary_set: basis points; default: the proposal's share."""
    from_the_beginning: bool = False
    """withdrawn: see `Event.from_the_beginning`."""


@dataclass(frozen=True)
class Stop:
    """A guard watch's request to end a rollout after a breach, or after the deadline of its guards."""

    rollout_id: str
    seq: int
    """The rollout's seq at the time of the assessment."""
    reason: str
    challenger: str = ""
    """Challenger of a breach; empty for a deadline."""
    guard: str = ""
    """Guard of a breach; empty for a deadline."""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """Evidence of a breach; empty for a deadline."""


@dataclass(frozen=True)
class Receipt:
    """The desk's answer to a written change, over HTTP, too."""

    rollout_id: str
    seq: Annotated[
        int, Field(description="The rollout's seq after the change, for If-Match of the next event")
    ]
    """For a repeated request, the rollout's current seq."""
    phase: Phase
    types: tuple[Type, ...]
    offsets: Annotated[tuple[int, ...], Field(description="Offsets of the events on model-rollouts")]
    repeated: Annotated[
        bool, Field(description="Whether an earlier request with the same Idempotency-Key wrote the events")
    ] = False


Refs = Mapping[str, ModelRef]
"""NAME/VERSION -> reference in the registry."""
