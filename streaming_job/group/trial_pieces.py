"""What the state keeps of rollouts beside their history: the trial's units, and from where on events held."""

from feature_store.journal import PieceStore
from streaming_job.decide.applied_events import AppliedEvents
from streaming_job.decide.rollout_history import Step
from streaming_job.decide.trial_units import TrialUnits

UNITS, APPLIED = "units", "applied"
"""Names of the pieces; that of the units is empty while no trial runs."""


class TrialPieces:
    """Units and applied events of a key group."""

    def __init__(self, store: PieceStore, steps: list[Step]) -> None:
        """Go on from persisted state.

        Args:
            store: the persisted pieces.
            steps: the rollout events folded so far; more are appended.
        """
        self._steps = steps
        units, applied = store.get(UNITS), store.get(APPLIED)
        self.units = TrialUnits.decode(units) if units else TrialUnits()
        self.applied = AppliedEvents.decode(applied) if applied else AppliedEvents()
        self._kept_empty, self._moved = units == b"", False
        self.applied.follow(steps)

    def folded(self) -> None:
        """Take in that rollout events have come."""
        self.applied.follow(self._steps)
        self._moved = True

    def moved(self) -> None:
        """Take in that events have begun to hold."""
        self._moved = True

    def seal(self, store: PieceStore) -> None:
        """Write what has changed."""
        units = self.units.encode() if self.units else b""
        # written even if empty: Spark warns in the job's log, at every opening, of a piece that is not there
        if units or not self._kept_empty:
            store.put(UNITS, units)
        self._kept_empty = not units
        if self._moved:
            store.put(APPLIED, self.applied.encode())
            self._moved = False
