"""Rollout rules: which event may follow which, and which models score and decide.

Naive on purpose: a table and a few `if`s, written independently of the job's state machine.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtests.oracle import four_eyes, policies
from loadtests.oracle.membership import salt_of
from loadtests.oracle.rollout_events import Candidate, Event
from models.policy import Policy
from models.registry import ModelRef
from streaming_job.contracts import Reason

FINAL = {"promoted", "rolled_back", "withdrawn"}
TRIED = {"shadow", "canary", "paused"}
"""Phases in which challengers score transactions."""
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
"""Phases in which an event is accepted, by its type; a withdrawn rollout may also be withdrawn
again, from the beginning (see `_conflicts`)."""


class Scorer(NamedTuple):
    """A model and its policy, as part of a plan."""

    rollout_id: str
    seq: int
    """Number of the champion's promotion, or of the newest event of the challenger's rollout."""
    model: ModelRef
    policy: Policy
    challenger: str = ""
    """Name of the challenger; empty for the champion."""


class Plan(NamedTuple):
    """The models that score, and which of them decide."""

    champion: Scorer
    challengers: tuple[Scorer, ...] = ()
    """Models that score beside the champion."""
    canary: str = ""
    """Name of the challenger that decides for some cards; empty if none does."""
    share_bp: int = 0
    salt: str = ""

    @property
    def trial(self) -> str | None:
        """Rollout id of the challengers; None without any."""
        return self.challengers[0].rollout_id if self.challengers else None


@dataclass
class _Rollout:
    """One rollout after its events so far."""

    candidates: tuple[Candidate, ...]
    line: str
    seq: int
    proposal: Event
    phase: str = "proposed"
    before_pause: str = ""
    canary: str = ""
    share_bp: int = 0
    events: dict[str, Event] = field(default_factory=dict)
    """Events by idempotency key."""


class State:
    """All rollouts after some events."""

    def __init__(self, events: Iterable[Event] = (), void: Collection[int] = ()) -> None:
        """Fold accepted events.

        Args:
            events: in the order of the log.
            void: indices of promotions to ignore.
        """
        self.rollouts: dict[str, _Rollout] = {}
        self.champions: list[Scorer] = []
        self.demands = four_eyes.Demands()
        for number, event in enumerate(events):
            self._move(event, number in void)

    @property
    def open(self) -> str | None:
        """Id of the rollout whose phase is not final; None without one."""
        return next((name for name, rollout in self.rollouts.items() if rollout.phase not in FINAL), None)

    def _move(self, event: Event, is_void: bool) -> None:
        if event.type == "proposed":
            self.rollouts[event.rollout_id] = _Rollout(
                event.candidates, event.line, event.seq, event, events={event.key: event}
            )
            self.demands = self.demands.after_proposal(event)
            return
        rollout = self.rollouts[event.rollout_id]
        rollout.seq = event.seq
        rollout.events[event.key] = event
        if event.type == "shadow_started":
            rollout.phase = "shadow"
        elif event.type == "canary_set":
            rollout.phase, rollout.canary, rollout.share_bp = "canary", event.challenger, event.share_bp
        elif event.type == "paused":
            rollout.phase, rollout.before_pause = "paused", rollout.phase
        elif event.type == "resumed":
            rollout.phase = rollout.before_pause
        else:
            rollout.phase = event.type
        if event.type == "promoted" and not is_void:
            best = next(c for c in rollout.candidates if c.name == event.challenger)
            self.champions.append(Scorer(event.rollout_id, event.seq, best.model, best.policy))
        if event.type == "promoted":
            self.demands = self.demands.after_promotion(rollout.proposal)
        if event.type == "withdrawn":
            self.champions = [c for c in self.champions if c.rollout_id != event.rollout_id]

    def fault(self, event: Event) -> Reason | None:
        """Return why an event is refused; None if it is accepted."""
        rollout = self.rollouts.get(event.rollout_id)
        if event.type == "proposed":
            digest = self.champions[-1].model.digest if self.champions else None
            fits = event.any_champion or event.champion == digest
            free = rollout is None and self.open is None and event.seq == 1
            return None if fits and free else Reason.ROLLOUT_CONFLICT
        if rollout is None:
            return Reason.UNKNOWN_ROLLOUT
        if self._conflicts(event, rollout):
            return Reason.ROLLOUT_CONFLICT
        if event.type == "withdrawn" and {c.rollout_id for c in self.champions} == {event.rollout_id}:
            return Reason.LAST_ROLLOUT
        if self.demands.four_eyes and self._lacks_second_person(event, rollout):
            return Reason.SECOND_PERSON_MISSING
        return None

    def _lacks_second_person(self, event: Event, rollout: _Rollout) -> bool:
        proposal, promotes = rollout.proposal, event.type == "promoted"
        if event.type == "withdrawn":
            left = [c for c in self.champions if c.rollout_id != event.rollout_id]
            if left and left[-1] != self.champions[-1]:
                proposal = self.rollouts[left[-1].rollout_id].proposal
                promotes = policies.lets_more_through(left[-1].policy, self.champions[-1].policy)
        elif event.type == "canary_set":
            promotes = self._is_great(rollout, event.challenger, event.share_bp)
        elif event.type == "resumed" and rollout.before_pause == "canary":
            promotes = self._is_great(rollout, rollout.canary, rollout.share_bp)
        return promotes and not four_eyes.is_approved(event, proposal)

    def _is_great(self, rollout: _Rollout, name: str, share_bp: int) -> bool:
        """Return whether a challenger's share of the cards counts as a promotion."""
        if rollout.phase == "canary" and rollout.canary == name and share_bp <= rollout.share_bp:
            return False
        if share_bp > self.demands.most_share_bp or four_eyes.has_weak_guards(rollout.proposal):
            return True
        policy = next(candidate.policy for candidate in rollout.candidates if candidate.name == name)
        return any(policies.lets_more_through(policy, champion.policy) for champion in self.champions[-1:])

    @staticmethod
    def _conflicts(event: Event, rollout: _Rollout) -> bool:
        again = rollout.phase == "withdrawn" and event.type == "withdrawn" and event.from_the_beginning
        return (
            event.key in rollout.events
            or (event.seq <= rollout.seq if event.type == "rolled_back" else event.seq != rollout.seq + 1)
            or not (rollout.phase in AFTER[event.type] or again)
            or bool(event.challenger and event.challenger not in {c.name for c in rollout.candidates})
        )

    def repeats(self, event: Event) -> bool:
        """Return whether an equal event with the same idempotency key was accepted."""
        rollout = self.rollouts.get(event.rollout_id)
        return rollout is not None and rollout.events.get(event.key) == event

    def plan(self) -> Plan | None:
        """Return the plan in force; None without a champion."""
        if not self.champions:
            return None
        champion, name = self.champions[-1], self.open
        if name is None or self.rollouts[name].phase not in TRIED:
            return Plan(champion)
        rollout = self.rollouts[name]
        challengers = tuple(Scorer(name, rollout.seq, c.model, c.policy, c.name) for c in rollout.candidates)
        canary, share_bp = (rollout.canary, rollout.share_bp) if rollout.phase == "canary" else ("", 0)
        return Plan(champion, challengers, canary, share_bp, salt_of(rollout.line))
