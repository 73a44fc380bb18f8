"""The state machine of rollouts: which events are accepted, and who decides after them. Pure.

    proposed -> shadow -> canary -> promoted -> withdrawn
                 paused: from shadow and canary, and back
                 breached: from shadow, canary and paused; then rolled_back
    rolled_back is accepted in every phase that is not final.

Events of the first version are accepted whatever the state: they knew no rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from feature_store.errors import FraudError
from models.policy import Policy
from models.registry import ModelRef
from models.rollouts.events import CANARY, SHADOW, Challenger, Event, Type
from models.rollouts.membership import salt_of
from streaming_job.contracts import Reason

CHAMPION = "champion"


class Phase(StrEnum):
    """Where a rollout is."""

    PROPOSED = "proposed"
    SHADOW = "shadow"
    CANARY = "canary"
    PAUSED = "paused"
    BREACHED = "breached"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    WITHDRAWN = "withdrawn"


FINAL = frozenset({Phase.PROMOTED, Phase.ROLLED_BACK, Phase.WITHDRAWN})
"""A rollout in one of these is not open any more; only a promotion may still be withdrawn."""
TRIED = frozenset({Phase.SHADOW, Phase.CANARY, Phase.PAUSED})
"""Challengers are scored."""
ALLOWED: Mapping[Type, frozenset[Phase]] = {
    Type.SHADOW_STARTED: frozenset({Phase.PROPOSED}),
    Type.CANARY_SET: TRIED,
    Type.PAUSED: frozenset({Phase.SHADOW, Phase.CANARY}),
    Type.RESUMED: frozenset({Phase.PAUSED}),
    Type.BREACHED: TRIED,
    Type.ROLLED_BACK: frozenset(Phase) - FINAL,
    Type.PROMOTED: TRIED | {Phase.PROPOSED},
    # a withdrawn one again: its files are lost, so it is to be passed over from the beginning
    Type.WITHDRAWN: frozenset({Phase.PROMOTED, Phase.WITHDRAWN}),
}
"""Phases in which each type is accepted."""


class ConflictError(FraudError):
    """An event that the state of the rollouts does not allow."""

    def __init__(self, text: str, reason: Reason = Reason.ROLLOUT_CONFLICT) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Decides:
    """A model and a policy, and the rollout that gave them their part."""

    rollout_id: str
    seq: int
    """Of the champion: of its promotion; of a challenger: of the rollout's newest event."""
    model: ModelRef
    policy: Policy
    role: str
    """champion, canary or shadow."""
    challenger: str
    """Its name; empty for the champion."""


@dataclass(frozen=True)
class Trial:
    """A rollout."""

    rollout_id: str
    seq: int
    """Of its newest event."""
    phase: Phase
    before_pause: Phase | None
    """While paused: where it goes on."""
    challengers: tuple[Challenger, ...]
    canary: str
    """Name of the challenger that decides for its share of the cards, or would if it were not paused."""
    share_bp: int
    guards: Mapping[str, Any] | None
    line: str
    keys: Mapping[str, str]
    """Idempotency key of each accepted event -> its content (`Event.content`)."""
    opened_by: str
    """Who proposed it."""


@dataclass(frozen=True)
class Line:
    """All rollouts so far, and who decides."""

    champions: tuple[Decides, ...] = ()
    """A stack: the last one is in force, a withdrawal brings back the one below."""
    trials: Mapping[str, Trial] = field(default_factory=dict)
    """By rollout_id, in the order in which they were proposed."""
    open: str | None = None
    """rollout_id of the one that is not final."""


@dataclass(frozen=True)
class Plan:
    """Who scores and who decides."""

    champion: Decides
    challengers: tuple[Decides, ...]
    """Scored beside it; role canary for the one that decides for its members."""
    trial: str | None
    """rollout_id of the challengers; None without any."""
    seq: int
    """Of the trial's newest event; without one of the champion's promotion."""
    canary: str
    """Name of the challenger that decides for some cards; empty if none does."""
    share_bp: int
    """Of the cards; 0 without canary."""
    salt: str
    """Of the membership; empty without challengers."""


def apply(line: Line, event: Event) -> Line:
    """The rollouts after an event; `line` itself if it repeats an accepted one.

    Raises:
        ConflictError: the event is refused; `.reason` is the dead letter's.
    """
    if is_repetition(line, event):
        return line
    require_allowed(line, event)
    return moved(line, event)


def is_repetition(line: Line, event: Event) -> bool:
    """Whether an accepted event had the same idempotency key and says the same."""
    known = line.trials.get(event.rollout_id)
    if known is None or event.schema_version == 1:
        return False
    return known.keys.get(event.idempotency_key) == event.content


def require_allowed(line: Line, event: Event) -> None:
    """See that an event may follow.

    Raises:
        ConflictError: it may not.
    """
    known = line.trials.get(event.rollout_id)
    if event.type is Type.PROPOSED:
        if event.schema_version > 1:
            _require_proposable(line, event, known)
        return
    if known is None:
        raise ConflictError(
            f"there is no rollout {event.rollout_id} before this; see `fraud rollouts list`",
            Reason.UNKNOWN_ROLLOUT,
        )
    if event.schema_version > 1:
        _require_next(known, event)
    others = [one for one in line.champions if one.rollout_id != event.rollout_id]
    if event.type is Type.WITHDRAWN and line.champions and not others:
        raise ConflictError(
            f"nothing could decide without {event.rollout_id}; promote another model first",
            Reason.LAST_ROLLOUT,
        )


def _require_proposable(line: Line, event: Event, known: Trial | None) -> None:
    if known is not None:
        raise ConflictError(f"there is a rollout {event.rollout_id} already; give another rollout_id")
    if event.seq != 1:
        raise ConflictError(f"a proposal is event 1 of its rollout, not {event.seq}; give seq 1")
    if line.open is not None:
        raise ConflictError(f"rollout {line.open} is open; promote it or roll it back first")
    if event.any_champion:
        return
    in_force = line.champions[-1].model if line.champions else None
    told, found = (model.digest if model else None for model in (event.champion, in_force))
    if told != found:
        raise ConflictError(
            f"the proposal is to replace {_named(event.champion)}, but {_named(in_force)} is in force; "
            "propose it against that one"
        )


def _named(model: ModelRef | None) -> str:
    return f"{model.name}/{model.version} ({model.digest[:12]})" if model else "no model"


def _require_next(known: Trial, event: Event) -> None:
    name = event.rollout_id
    if event.idempotency_key in known.keys:
        raise ConflictError(
            f"idempotency key {event.idempotency_key!r} of {name} stood for something else; give a new one"
        )
    follows = event.seq > known.seq if event.type is Type.ROLLED_BACK else event.seq == known.seq + 1
    if not follows:
        raise ConflictError(
            f"{event.type} is event {event.seq} of {name}, which stands at {known.seq}; look at it, "
            "then ask again"
        )
    if known.phase not in ALLOWED[event.type] or (
        known.phase is Phase.WITHDRAWN and not event.from_the_beginning
    ):
        raise ConflictError(
            f"{name} is {known.phase}, which does not allow {event.type}; see `fraud rollouts show {name}`"
        )
    if event.challenger and event.challenger not in {one.name for one in known.challengers}:
        raise ConflictError(
            f"{name} has no challenger {event.challenger!r}; it has "
            f"{', '.join(one.name for one in known.challengers)}"
        )


def moved(line: Line, event: Event) -> Line:
    """The rollouts after an event that is known to be accepted; asks nothing."""
    if event.type is Type.PROPOSED:
        return _opened(line, event)
    known = line.trials[event.rollout_id]
    seq = event.seq if event.schema_version > 1 else known.seq + 1
    trial = replace(known, seq=seq, keys={**known.keys, event.idempotency_key: event.content})
    champions = line.champions
    match event.type:
        case Type.SHADOW_STARTED:
            trial = replace(trial, phase=Phase.SHADOW)
        case Type.CANARY_SET:
            trial = replace(
                trial, phase=Phase.CANARY, before_pause=None, canary=event.challenger, share_bp=event.share_bp
            )
        case Type.PAUSED:
            trial = replace(trial, phase=Phase.PAUSED, before_pause=known.phase)
        case Type.RESUMED:
            trial = replace(trial, phase=known.before_pause or Phase.SHADOW, before_pause=None)
        case Type.BREACHED:
            trial = replace(trial, phase=Phase.BREACHED, before_pause=None)
        case Type.ROLLED_BACK:
            trial = replace(trial, phase=Phase.ROLLED_BACK, before_pause=None)
        case Type.PROMOTED:
            trial = replace(trial, phase=Phase.PROMOTED, before_pause=None)
            best = next(one for one in known.challengers if one.name == event.challenger)
            champions = (
                *champions, Decides(event.rollout_id, seq, best.model, best.policy, CHAMPION, "")
            )  # fmt: skip
        case Type.WITHDRAWN:
            trial = replace(trial, phase=Phase.WITHDRAWN)
            champions = tuple(one for one in champions if one.rollout_id != event.rollout_id)
    is_open = trial.phase not in FINAL
    still = trial.rollout_id if is_open else None if line.open == trial.rollout_id else line.open
    return Line(champions, {**line.trials, trial.rollout_id: trial}, still)


def _opened(line: Line, event: Event) -> Line:
    trials = dict(line.trials)
    if line.open is not None:  # by an event of the first version, which knew of no open rollouts
        left = trials[line.open]
        trials[line.open] = replace(left, phase=Phase.ROLLED_BACK, before_pause=None)
    again = trials.pop(event.rollout_id, None)
    trials[event.rollout_id] = Trial(
        event.rollout_id,
        event.seq if again is None else again.seq + 1,
        Phase.PROPOSED,
        None,
        event.challengers,
        "",
        0,
        event.guards,
        event.line,
        {event.idempotency_key: event.content},
        event.actor,
    )
    return Line(line.champions, trials, event.rollout_id)


def allowed(line: Line, rollout_id: str) -> tuple[Type, ...]:
    """Types of the events that may follow in a rollout, in their usual order; proposed if there is none."""
    known = line.trials.get(rollout_id)
    if known is None:
        return () if line.open is not None else (Type.PROPOSED,)
    found = [kind for kind, phases in ALLOWED.items() if known.phase in phases]
    if all(champion.rollout_id == rollout_id for champion in line.champions) and Type.WITHDRAWN in found:
        found.remove(Type.WITHDRAWN)
    return tuple(found)


def plan(line: Line) -> Plan | None:
    """Who scores and who decides; None if no model has been promoted."""
    if not line.champions:
        return None
    champion = line.champions[-1]
    trial = line.trials[line.open] if line.open is not None else None
    if trial is None or trial.phase not in TRIED:
        return Plan(champion, (), None, champion.seq, "", 0, "")
    canary = trial.canary if trial.phase is Phase.CANARY else ""
    challengers = tuple(
        Decides(
            trial.rollout_id,
            trial.seq,
            one.model,
            one.policy,
            CANARY if one.name == canary else SHADOW,
            one.name,
        )
        for one in trial.challengers
    )
    share_bp = trial.share_bp if canary else 0
    return Plan(champion, challengers, trial.rollout_id, trial.seq, canary, share_bp, salt_of(trial.line))
