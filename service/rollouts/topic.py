"""The desk's access to the rollout topic: reading to its end, and writing events with audit records."""

from collections.abc import Callable, Mapping, Sequence

from models.rollouts.events import Event
from service.rollouts import reading
from service.rollouts.audited import RolloutAudit
from service.rollouts.errors import DeskError
from service.rollouts.history import History
from service.rollouts.refusals import Refusals
from service.rollouts.requests import Actor
from service.rollouts.writing import RolloutWriter
from service.settings import ServiceSettings

Write = Callable[[Sequence[Event], Actor], list[int]]
"""Writes events and their audit records in one Kafka transaction; returns the events' offsets."""


class Rollouts:
    """The rollout topic of a job, with one writer at a time."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        """Create the object without connecting."""
        self._settings = settings
        self._audit = RolloutAudit(settings, clock)
        self._refusals = Refusals(settings, clock)

    def read(self, set_aside: Mapping[int, str], since: History) -> History:
        """Extend the history `since` by all later records; raises DeskError."""
        return reading.history(self._settings, set_aside, since)

    def open(self) -> Write:
        """Fence the previous writer, and return the function that writes; it and `open` raise DeskError."""
        writer = RolloutWriter(self._settings)
        return lambda events, actor: writer.write(events, self._audit.of(events, actor))

    def note_refusal(self, action: str, target: str, actor: Actor, refusal: DeskError) -> None:
        """Record a refused request, without fencing a writer; never raises."""
        self._refusals.note(action, target, actor, refusal)
