"""The state of rollouts, which `machine` derives from events: phases, champions, and the plan in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import NO_DEMANDS, Challenger, Demands


class Phase(StrEnum):
    """Phase of a rollout."""

    PROPOSED = "proposed"
    SHADOW = "shadow"
    CANARY = "canary"
    PAUSED = "paused"
    BREACHED = "breached"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    WITHDRAWN = "withdrawn"


FINAL = frozenset({Phase.PROMOTED, Phase.ROLLED_BACK, Phase.WITHDRAWN})
"""Phases of a rollout that is no longer open; a promoted rollout may still be withdrawn."""
TRIED = frozenset({Phase.SHADOW, Phase.CANARY, Phase.PAUSED})
"""Phases in which challengers score transactions."""


FIRST_DEMANDS = Demands(four_eyes=False, operator_max_share_bp=1_000)
"""Demands before the first proposal that has any."""


@dataclass(frozen=True)
class Decides:
    """A model and a policy with a role, and the rollout that assigned the role."""

    rollout_id: str
    seq: int
    """Event number: for the champion that of its promotion, for a challenger the rollout's newest."""
    model: ModelRef
    policy: Policy
    role: str
    """champion, canary or shadow."""
    challenger: str
    """Name of the challenger; empty for the champion."""


@dataclass(frozen=True)
class Trial:
    """State of a rollout."""

    rollout_id: str
    seq: int
    """Number of the newest event."""
    phase: Phase
    before_pause: Phase | None
    """While paused: the phase to resume."""
    challengers: tuple[Challenger, ...]
    canary: str
    """Name of the challenger in the newest `canary_set`; the challenger decides for its share of the cards
    while the phase is canary. Empty before the first `canary_set`."""
    share_bp: int
    guards: Mapping[str, Any] | None
    line: str
    keys: Mapping[str, str]
    """Idempotency key of each accepted event -> its content (`Event.content`)."""
    opened_by: str
    """Actor of the proposal."""
    demands: Demands = NO_DEMANDS
    """Demands of the proposal."""


@dataclass(frozen=True)
class Line:
    """State of all rollouts, with the stack of champions."""

    champions: tuple[Decides, ...] = ()
    """A stack: the last champion is in force; its withdrawal restores the champion before it."""
    trials: Mapping[str, Trial] = field(default_factory=dict)
    """rollout_id -> rollout, in the order of the proposals."""
    open: str | None = None
    """rollout_id of the open rollout, whose phase is not final; None if no rollout is open."""
    demands: Demands = FIRST_DEMANDS
    """Demands in force, each with a value."""

    @property
    def open_trial(self) -> Trial | None:
        """The open rollout."""
        return self.trials[self.open] if self.open is not None else None


@dataclass(frozen=True)
class Plan:
    """The champion and challengers that score, and the share of the cards for which a canary decides."""

    champion: Decides
    challengers: tuple[Decides, ...]
    """Models that score beside the champion; at most one has role canary and decides for its members."""
    trial: str | None
    """rollout_id of the challengers; None without challengers."""
    seq: int
    """Number of the trial's newest event; without a trial, number of the champion's promotion."""
    canary: str
    """Name of the challenger that decides for a share of the cards; empty without canary."""
    share_bp: int
    """Share of the cards, basis points; 0 without canary."""
    salt: str
    """Salt of the membership; empty without challengers."""
