"""The plans of rollouts by arrival: which models decide and score from when on.

A plan follows from the accepted events of the rollout topic. Champions and challengers whose features a
release does not compute are passed over, and so is a champion whose promotion was withdrawn "from the
beginning", that is, as if the promotion had never happened.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from models.registry import ModelRef
from models.rollouts.events import Event, Type
from models.rollouts.state import Decides, Plan


@dataclass(frozen=True)
class AcceptedEvent:
    """An accepted event, with the champions and the plan after it."""

    since: int
    """Arrival from which the event applies, ms: its own, or that of a preceding event if later."""
    offset: int
    event: Event
    champions: tuple[Decides, ...]
    """The stack of champions (`state.Line`), including those that this release cannot compute."""
    plan: Plan | None
    """The plan that follows from the accepted events so far, whatever this release can compute."""


def plans_in_force(
    events: Sequence[AcceptedEvent], can_compute: Callable[[ModelRef], bool]
) -> list[tuple[int, Plan]]:
    """Derive from all events which plan was in force from when on.

    Args:
        events: accepted events, in the order of offsets.
        can_compute: whether the release computes the features of a model.

    Returns:
        (arrival in ms from which the plan is in force, plan), ascending.
    """
    in_force: list[tuple[int, Plan]] = []
    for since, plan in _plans(events, can_compute):
        if not in_force or in_force[-1][1] != plan:
            in_force.append((since, plan))
    return in_force


def _plans(
    events: Sequence[AcceptedEvent], can_compute: Callable[[ModelRef], bool]
) -> Iterator[tuple[int, Plan]]:
    withdrawn = _withdrawn_promotions(events)
    for accepted in events:
        champion = next(
            (
                decider
                for decider in reversed(accepted.champions)
                if (decider.rollout_id, decider.seq) not in withdrawn and can_compute(decider.model)
            ),
            None,
        )
        if champion is not None and accepted.plan is not None:
            able = tuple(decider for decider in accepted.plan.challengers if can_compute(decider.model))
            seq = champion.seq if accepted.plan.trial is None else accepted.plan.seq
            yield accepted.since, replace(accepted.plan, champion=champion, challengers=able, seq=seq)


def _withdrawn_promotions(events: Sequence[AcceptedEvent]) -> set[tuple[str, int]]:
    """Return (rollout_id, seq) of the promotions that were withdrawn from the beginning."""
    promoted: dict[str, set[int]] = {}
    withdrawn: set[tuple[str, int]] = set()
    for accepted in events:
        for champion in accepted.champions[-1:]:
            promoted.setdefault(champion.rollout_id, set()).add(champion.seq)
        if accepted.event.type is Type.WITHDRAWN and accepted.event.from_the_beginning:
            name = accepted.event.rollout_id
            withdrawn |= {(name, seq) for seq in promoted.get(name, ())}
    return withdrawn
