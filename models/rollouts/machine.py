"""The state machine of rollouts: which events are accepted, and which models decide after them. Pure.

    proposed -> shadow -> canary -> promoted -> withdrawn
                 paused: from shadow and canary, and back
                 canary: also from paused, or again from canary, by a new canary_set
                 promoted: also from proposed, shadow and paused
                 breached: from shadow, canary and paused; then rolled_back
                 withdrawn: again from withdrawn, with from_the_beginning
    rolled_back is accepted in every phase that is not final.

A withdrawal is refused if no promoted rollout would be left. Where the log demands four eyes, an event that
counts as a promotion (`authority`) is refused without a second person.
"""

from collections.abc import Mapping
from dataclasses import replace

from feature_store.errors import FraudError
from models.registry import ModelRef
from models.rollouts import authority
from models.rollouts.events import CANARY, SHADOW, Event, Type
from models.rollouts.membership import salt_of
from models.rollouts.state import FINAL, TRIED, Decides, Line, Phase, Plan, Trial
from streaming_job.contracts import Reason

CHAMPION = "champion"


ALLOWED: Mapping[Type, frozenset[Phase]] = {
    Type.SHADOW_STARTED: frozenset({Phase.PROPOSED}),
    Type.CANARY_SET: TRIED,
    Type.PAUSED: frozenset({Phase.SHADOW, Phase.CANARY}),
    Type.RESUMED: frozenset({Phase.PAUSED}),
    Type.BREACHED: TRIED,
    Type.ROLLED_BACK: frozenset(Phase) - FINAL,
    Type.PROMOTED: TRIED | {Phase.PROPOSED},
    # a withdrawn rollout may be withdrawn again with from_the_beginning, for example because its model's
    # files are lost: another model then decides the transactions that arrived under the rollout before its
    # first withdrawal and are not decided yet
    Type.WITHDRAWN: frozenset({Phase.PROMOTED, Phase.WITHDRAWN}),
}
"""Phases in which each type but `proposed` is accepted."""
AFTER: Mapping[Type, Phase] = {
    Type.PROPOSED: Phase.PROPOSED,
    Type.SHADOW_STARTED: Phase.SHADOW,
    Type.CANARY_SET: Phase.CANARY,
    Type.BREACHED: Phase.BREACHED,
    Type.ROLLED_BACK: Phase.ROLLED_BACK,
    Type.PROMOTED: Phase.PROMOTED,
    Type.WITHDRAWN: Phase.WITHDRAWN,
}
"""Phase after each type but `paused` and `resumed`, whatever the phase before."""


class ConflictError(FraudError):
    """The state of the rollouts does not allow the event.

    Read the rollout, then retry.
    """

    def __init__(self, text: str, reason: Reason = Reason.ROLLOUT_CONFLICT) -> None:
        super().__init__(text)
        self.reason = reason


def apply(line: Line, event: Event) -> Line:
    """Apply an event to the rollouts; return `line` itself if the event repeats an accepted one.

    Raises:
        ConflictError: the event is refused; `.reason` is the reason of its dead letter.
    """
    if is_repetition(line, event):
        return line
    require_allowed(line, event)
    return apply_accepted(line, event)


def is_repetition(line: Line, event: Event) -> bool:
    """Return whether an accepted event has the same idempotency key and content."""
    trial = line.trials.get(event.rollout_id)
    return trial is not None and trial.keys.get(event.idempotency_key) == event.content


def require_allowed(line: Line, event: Event) -> None:
    """Raise ConflictError unless the state of the rollouts allows an event."""
    trial = line.trials.get(event.rollout_id)
    if event.type is Type.PROPOSED:
        _require_proposable(line, event, trial)
        return
    if trial is None:
        raise ConflictError(
            f"there is no rollout {event.rollout_id} before this event; see `fraud rollouts show`",
            Reason.UNKNOWN_ROLLOUT,
        )
    _require_next(trial, event)
    others = [champion for champion in line.champions if champion.rollout_id != event.rollout_id]
    if event.type is Type.WITHDRAWN and line.champions and not others:
        raise ConflictError(
            f"nothing could decide without {event.rollout_id}; promote another model first",
            Reason.LAST_ROLLOUT,
        )
    require_second_person(line, event)


def require_second_person(line: Line, event: Event) -> None:
    """Raise ConflictError if a promotion lacks the second person that the log demands."""
    demands = line.demands
    if not demands.four_eyes:
        return
    assert demands.operator_max_share_bp is not None
    reasons = authority.promotion(line, event, demands.operator_max_share_bp)
    if reasons and not authority.has_second_person(line, event):
        raise ConflictError(
            f"{event.type} of {event.rollout_id} counts as a promotion ({'; '.join(reasons)}), and needs the "
            f"approval of somebody who did not propose it; {event.actor} may not give it: ask another",
            Reason.SECOND_PERSON_MISSING,
        )


def _require_proposable(line: Line, event: Event, trial: Trial | None) -> None:
    if trial is not None:
        raise ConflictError(f"there is a rollout {event.rollout_id} already; give another rollout_id")
    if event.seq != 1:
        raise ConflictError(f"a proposal is event 1 of its rollout, not {event.seq}; give seq 1")
    if line.open is not None:
        raise ConflictError(f"rollout {line.open} is open; promote it or roll it back first")
    if event.any_champion:
        return
    in_force = line.champions[-1].model if line.champions else None
    expected, actual = (model.digest if model else None for model in (event.champion, in_force))
    if expected != actual:
        raise ConflictError(
            f"the proposal is to replace {_label(event.champion)}, but {_label(in_force)} is in force; "
            "propose again, against that one"
        )


def _label(model: ModelRef | None) -> str:
    return f"{model} ({model.digest[:12]})" if model else "no model"


def _require_next(trial: Trial, event: Event) -> None:
    name = event.rollout_id
    if event.idempotency_key in trial.keys:
        raise ConflictError(
            f"idempotency key {event.idempotency_key!r} of {name} belongs to another request; give a new one"
        )
    follows = event.seq > trial.seq if event.type is Type.ROLLED_BACK else event.seq == trial.seq + 1
    if not follows:
        raise ConflictError(
            f"{name} stands at event {trial.seq}, so {event.type} cannot be event {event.seq}; look at the "
            "rollout, then ask again"
        )
    if trial.phase not in ALLOWED[event.type] or (
        trial.phase is Phase.WITHDRAWN and not event.from_the_beginning
    ):
        raise ConflictError(
            f"{name} is {trial.phase}, which does not allow {event.type}; see `fraud rollouts show {name}`"
        )
    names = [challenger.name for challenger in trial.challengers]
    if event.challenger and event.challenger not in names:
        raise ConflictError(f"{name} has no challenger {event.challenger!r}; it has {', '.join(names)}")


def after(kind: Type, phase: Phase | None, before_pause: Phase | None) -> tuple[Phase, Phase | None]:
    """Return the phase of a rollout after an accepted event, and the phase that a pause interrupts.

    Args:
        phase: the phase before it; None if that is unknown.
        before_pause: the phase that a pause interrupts; None without a pause, or if it is unknown.
    """
    if kind is Type.PAUSED:
        return Phase.PAUSED, phase
    if kind is Type.RESUMED:
        return before_pause or Phase.SHADOW, None
    return AFTER[kind], None


def apply_accepted(line: Line, event: Event) -> Line:
    """Apply an event that is known to be accepted, without checks."""
    if event.type is Type.PROPOSED:
        return _opened(line, event)
    before = line.trials[event.rollout_id]
    phase, before_pause = after(event.type, before.phase, before.before_pause)
    keys = {**before.keys, event.idempotency_key: event.content}
    trial = replace(before, seq=event.seq, phase=phase, before_pause=before_pause, keys=keys)
    champions, demands = line.champions, line.demands
    if event.type is Type.CANARY_SET:
        trial = replace(trial, canary=event.challenger, share_bp=event.share_bp)
    elif event.type is Type.PROMOTED:
        promoted = next(item for item in before.challengers if item.name == event.challenger)
        decides = Decides(event.rollout_id, event.seq, promoted.model, promoted.policy, CHAMPION, "")
        champions, demands = (*champions, decides), demands.replaced_by(before.demands)
    elif event.type is Type.WITHDRAWN:
        champions = tuple(item for item in champions if item.rollout_id != event.rollout_id)
    is_open = trial.phase not in FINAL
    open_id = trial.rollout_id if is_open else None if line.open == trial.rollout_id else line.open
    return Line(champions, {**line.trials, trial.rollout_id: trial}, open_id, demands)


def _opened(line: Line, event: Event) -> Line:
    trial = Trial(
        event.rollout_id,
        event.seq,
        Phase.PROPOSED,
        None,
        event.challengers,
        "",
        0,
        event.guards,
        event.line,
        {event.idempotency_key: event.content},
        event.actor,
        event.demands,
    )
    trials = {**line.trials, event.rollout_id: trial}
    return Line(line.champions, trials, event.rollout_id, line.demands.tightened_by(event.demands))


def allowed(line: Line, rollout_id: str) -> tuple[Type, ...]:
    """List the types of events that may follow, in their usual order.

    For an unknown rollout: `proposed`, or none while another rollout is open.
    """
    trial = line.trials.get(rollout_id)
    if trial is None:
        return () if line.open is not None else (Type.PROPOSED,)
    types = [kind for kind, phases in ALLOWED.items() if trial.phase in phases]
    if all(champion.rollout_id == rollout_id for champion in line.champions) and Type.WITHDRAWN in types:
        types.remove(Type.WITHDRAWN)
    return tuple(types)


def plan(line: Line) -> Plan | None:
    """Return which models score and which decide; None if no model has been promoted."""
    if not line.champions:
        return None
    champion = line.champions[-1]
    trial = line.open_trial
    if trial is None or trial.phase not in TRIED:
        return Plan(champion, (), None, champion.seq, "", 0, "")
    canary = trial.canary if trial.phase is Phase.CANARY else ""
    challengers = tuple(
        Decides(
            trial.rollout_id,
            trial.seq,
            challenger.model,
            challenger.policy,
            CANARY if challenger.name == canary else SHADOW,
            challenger.name,
        )
        for challenger in trial.challengers
    )
    share_bp = trial.share_bp if canary else 0
    return Plan(champion, challengers, trial.rollout_id, trial.seq, canary, share_bp, salt_of(trial.line))
