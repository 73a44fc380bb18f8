"""A trial, and the counts of its labelled cards. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.guards.counts import Labelled


@dataclass(frozen=True)
class LabelledTrial:
    """A rollout's challengers, and the time in which they score transactions."""

    rollout_id: str
    challengers: tuple[str, ...]
    since: int
    """Arrival from which they score transactions, ms; a later one if retention may have deleted records."""
    until: int | None = None
    """Arrival from which they no longer score transactions, ms; None while they do."""

    def covers(self, arrival: int) -> bool:
        """Return whether the challengers score transactions with this arrival, ms."""
        return self.since <= arrival and (self.until is None or arrival < self.until)


@dataclass(frozen=True)
class LabelCounts:
    """Labelled cards of a trial, by model."""

    champion: Labelled = field(default_factory=Labelled)
    challengers: Mapping[str, Labelled] = field(default_factory=dict)
    waiting_for: str | None = None
    """Why alerts or labels may be missing, so that the counts must not be judged; None if complete."""
