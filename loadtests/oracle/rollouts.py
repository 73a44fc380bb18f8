"""The rules of rollouts: which event may follow which, and who scores and decides after them.

Naive on purpose: a table and a few `if`s, written without looking at the job's state machine.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtests.oracle.membership import salt_of
from loadtests.oracle.rollout_events import Candidate, Event
from models.policy import Policy
from models.registry import ModelRef
from streaming_job.contracts import Reason

FINAL = {"promoted", "rolled_back", "withdrawn"}
TRIED = {"shadow", "canary", "paused"}
"""Phases in which challengers are scored."""
AFTER = {
    "shadow_started": {"proposed"},
    "canary_set": TRIED,
    "paused": {"shadow", "canary"},
    "resumed": {"paused"},
    "breached": TRIED,
    "rolled_back": TRIED | {"proposed", "breached"},
    "promoted": TRIED | {"proposed"},
    "withdrawn": {"promoted"},
}
"""Phases in which an event of each type is accepted."""


class Scorer(NamedTuple):
    """A model and a policy with a part in a plan."""

    rollout_id: str
    seq: int
    """Of a champion's promotion; of a challenger's rollout: its newest event."""
    model: ModelRef
    policy: Policy
    challenger: str = ""
    """Its name; empty for the champion."""
    version: int = 2
    """Of the contract that made it champion: 1 or 2."""


class Plan(NamedTuple):
    """Who scores and who decides."""

    champion: Scorer
    challengers: tuple[Scorer, ...] = ()
    """Scored beside it."""
    canary: str = ""
    """Name of the challenger that decides for some cards; empty if none does."""
    share_bp: int = 0
    salt: str = ""

    @property
    def trial(self) -> str | None:
        """Rollout of the challengers; None without any."""
        return self.challengers[0].rollout_id if self.challengers else None


@dataclass
class _Rollout:
    """One rollout as far as its events go."""

    candidates: tuple[Candidate, ...]
    line: str
    seq: int
    phase: str = "proposed"
    before_pause: str = ""
    canary: str = ""
    share_bp: int = 0
    said: dict[str, Event] = field(default_factory=dict)
    """Events by the names of their requests."""


class State:
    """All rollouts after some events."""

    def __init__(self, events: Iterable[Event] = (), void: Collection[int] = ()) -> None:
        """Fold events that are known to be accepted.

        Args:
            events: in the order of the log.
            void: numbers of the promotions that are passed over.
        """
        self.rollouts: dict[str, _Rollout] = {}
        self.champions: list[Scorer] = []
        for number, event in enumerate(events):
            self._move(event, number in void)

    @property
    def open(self) -> str | None:
        """The rollout that is not final."""
        return next((name for name, one in self.rollouts.items() if one.phase not in FINAL), None)

    def _move(self, event: Event, is_void: bool) -> None:
        if event.type == "proposed":
            if self.open is not None:
                self.rollouts[self.open].phase = "rolled_back"
            before = self.rollouts.get(event.rollout_id)
            seq = 1 if before is None else before.seq + 1
            self.rollouts[event.rollout_id] = _Rollout(
                event.candidates, event.line, seq, said={event.key: event}
            )
            return
        one = self.rollouts[event.rollout_id]
        one.seq = event.seq if event.version == 2 else one.seq + 1
        one.said[event.key] = event
        if event.type == "shadow_started":
            one.phase = "shadow"
        elif event.type == "canary_set":
            one.phase, one.canary, one.share_bp = "canary", event.challenger, event.share_bp
        elif event.type == "paused":
            one.phase, one.before_pause = "paused", one.phase
        elif event.type == "resumed":
            one.phase = one.before_pause
        else:
            one.phase = event.type
        if event.type == "promoted" and not is_void:
            best = next(one for one in one.candidates if one.name == event.challenger)
            self.champions.append(
                Scorer(event.rollout_id, one.seq, best.model, best.policy, version=event.version)
            )
        if event.type == "withdrawn":
            self.champions = [one for one in self.champions if one.rollout_id != event.rollout_id]

    def fault(self, event: Event) -> Reason | None:
        """Why an event cannot follow, if it cannot."""
        one = self.rollouts.get(event.rollout_id)
        if event.type == "proposed":
            digest = self.champions[-1].model.digest if self.champions else None
            fits = event.any_champion or event.champion == digest
            free = one is None and self.open is None and event.seq == 1
            return None if event.version == 1 or (fits and free) else Reason.ROLLOUT_CONFLICT
        if one is None:
            return Reason.UNKNOWN_ROLLOUT
        if event.version == 2 and self._conflicts(event, one):
            return Reason.ROLLOUT_CONFLICT
        if event.type == "withdrawn" and {c.rollout_id for c in self.champions} == {event.rollout_id}:
            return Reason.LAST_ROLLOUT
        return None

    @staticmethod
    def _conflicts(event: Event, one: _Rollout) -> bool:
        again = one.phase == "withdrawn" and event.type == "withdrawn" and event.from_the_beginning
        return (
            event.key in one.said
            or (event.seq <= one.seq if event.type == "rolled_back" else event.seq != one.seq + 1)
            or not (one.phase in AFTER[event.type] or again)
            or bool(event.challenger and event.challenger not in {c.name for c in one.candidates})
        )

    def repeats(self, event: Event) -> bool:
        """Whether an accepted event says the same under the same name."""
        one = self.rollouts.get(event.rollout_id)
        return event.version == 2 and one is not None and one.said.get(event.key) == event

    def plan(self) -> Plan | None:
        """Who scores and who decides; None before the first champion."""
        if not self.champions:
            return None
        champion, name = self.champions[-1], self.open
        if name is None or self.rollouts[name].phase not in TRIED:
            return Plan(champion)
        one = self.rollouts[name]
        challengers = tuple(Scorer(name, one.seq, c.model, c.policy, c.name) for c in one.candidates)
        canary, share_bp = (one.canary, one.share_bp) if one.phase == "canary" else ("", 0)
        return Plan(champion, challengers, canary, share_bp, salt_of(one.line))
