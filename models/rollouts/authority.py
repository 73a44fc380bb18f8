"""Which rollout events count as promotions: judged by their effect on who decides, not by their type. Pure.

An operator may let a challenger decide for a small share of the cards, by a policy that lets no more through
than the champion's, under guards that would end the rollout. Each event that goes further counts as a
promotion: it needs the role admin and, if the log demands it (`Demands.four_eyes`), a second person.
"""

from collections.abc import Mapping
from typing import Any

from models.errors import GuardError
from models.guards import floor
from models.guards import policy as guards_policy
from models.policy import PARAMETERS, Policy
from models.rollouts.events import Challenger, Event, Type
from models.rollouts.state import Line, Phase, Trial

GIVING = frozenset({Type.CANARY_SET, Type.RESUMED, Type.PROMOTED, Type.WITHDRAWN})
"""Types of events that may let another model decide."""


def promotion(line: Line, event: Event, operator_max_share_bp: int) -> tuple[str, ...]:
    """Say why an event counts as a promotion; return nothing if it does not.

    Args:
        operator_max_share_bp: greatest share of the cards that is no promotion, basis points.

    Returns:
        The reasons, for people.
    """
    trial = line.trials.get(event.rollout_id)
    if trial is None:
        return ()
    match event.type:
        case Type.PROMOTED:
            return (f"{event.challenger} would decide for every card",)
        case Type.WITHDRAWN:
            return _by_withdrawal(line, event)
        case Type.CANARY_SET if not _is_given(trial, event.challenger, event.share_bp):
            return _by_share(line, trial, event.challenger, event.share_bp, operator_max_share_bp)
        case Type.RESUMED if trial.before_pause is Phase.CANARY:
            return _by_share(line, trial, trial.canary, trial.share_bp, operator_max_share_bp)
    return ()


def needs_admin(line: Line, event: Event, operator_max_share_bp: int) -> tuple[str, ...]:
    """Say why an event needs the role admin: it counts as a promotion, or withdraws one; else nothing."""
    if event.type is Type.WITHDRAWN:
        return (f"{event.rollout_id} would decide no more",)
    return promotion(line, event, operator_max_share_bp)


def has_second_person(line: Line, event: Event) -> bool:
    """Return whether an event was approved by its actor, and proposed by somebody else.

    A withdrawal promotes the champion that it restores, so its proposer is that champion's.
    """
    name = event.rollout_id
    if event.type is Type.WITHDRAWN:
        name = next((item.rollout_id for item in reversed(line.champions) if item.rollout_id != name), name)
    trial = line.trials.get(name)
    proposer = trial.opened_by if trial is not None else event.actor
    return event.approved_by == event.actor != proposer


def weaker(policy: Policy, than: Policy) -> tuple[str, ...]:
    """List the fields by which a policy lets more through than another: decides fewer alerts or declines."""
    return tuple(
        f"{name} {getattr(policy, name)} is weaker than {getattr(than, name)}"
        for name, parameter in PARAMETERS.items()
        if parameter.strength(getattr(policy, name)) < parameter.strength(getattr(than, name))
    )


def _is_given(trial: Trial, challenger: str, share_bp: int) -> bool:
    """Return whether a challenger already decides for at least this share of the cards."""
    return trial.phase is Phase.CANARY and trial.canary == challenger and trial.share_bp >= share_bp


def _by_share(line: Line, trial: Trial, name: str, share_bp: int, most_bp: int) -> tuple[str, ...]:
    challenger = next((item for item in trial.challengers if item.name == name), None)
    found: tuple[str, ...] = ()
    if share_bp > most_bp:
        found += (f"{share_bp} basis points of the cards are more than {most_bp}",)
    if challenger is not None:
        found += _by_policy(line, challenger)
    return found + tuple(f"guards: {text}" for text in _weaknesses(trial.guards))


def _by_policy(line: Line, challenger: Challenger) -> tuple[str, ...]:
    champions = line.champions[-1:]
    return tuple(
        f"policy: {text}" for champion in champions for text in weaker(challenger.policy, champion.policy)
    )


def _weaknesses(guards: Mapping[str, Any] | None) -> tuple[str, ...]:
    try:
        return floor.weaknesses(guards_policy.read(guards))
    except GuardError as fault:
        return (f"they cannot be read: {fault}",)


def _by_withdrawal(line: Line, event: Event) -> tuple[str, ...]:
    left = [champion for champion in line.champions if champion.rollout_id != event.rollout_id]
    if not left or left[-1] == line.champions[-1]:
        return ()
    restored, in_force = left[-1], line.champions[-1]
    return tuple(
        f"policy of {restored.rollout_id}: {text}" for text in weaker(restored.policy, in_force.policy)
    )
