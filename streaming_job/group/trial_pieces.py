"""Trial units, applied events and feature counts: the pieces about rollouts besides the rollout history."""

from feature_store.state.journal import PieceSink, PieceStore
from streaming_job.decide.applied_events import AppliedEvents
from streaming_job.decide.feature_counts import FeatureCounts
from streaming_job.decide.plans_in_force import AcceptedEvent
from streaming_job.decide.trial_units import TrialUnits

UNITS, APPLIED, FEATURES = "units", "applied", "features"
"""Names of the pieces; the piece of the units is empty while no trial runs."""


class TrialPieces:
    """The trial units, applied events and feature counts of a key group."""

    def __init__(self, store: PieceStore, events: list[AcceptedEvent]) -> None:
        """Continue from persisted state.

        Args:
            events: the rollout events folded so far; the rollout history appends later ones to this list.
        """
        self._events = events
        units, applied, features = (store.get(name) for name in (UNITS, APPLIED, FEATURES))
        self.units = TrialUnits.decode(units) if units else TrialUnits()
        self.applied = AppliedEvents.decode(applied) if applied else AppliedEvents()
        self.features = FeatureCounts.decode(features) if features else FeatureCounts()
        self._stored_features = features
        self._stored_empty, self._applied_changed = units == b"", False
        self.applied.follow(events)

    def refresh(self) -> None:
        """Update the applied events after rollout events have been folded."""
        self.applied.follow(self._events)
        self._applied_changed = True

    def mark_changed(self) -> None:
        """Note that an applied event has changed, so that `seal` writes the applied events."""
        self._applied_changed = True

    def seal(self, store: PieceSink) -> None:
        """Write the applied events and the feature counts, each if changed, and the units.

        The units are not written if they are empty and their stored piece is empty already.
        """
        units = self.units.encode() if self.units else b""
        # an empty piece is written once: without it, Spark would log a warning at every opening
        if units or not self._stored_empty:
            store.put(UNITS, units)
        self._stored_empty = not units
        if self._applied_changed:
            store.put(APPLIED, self.applied.encode())
            self._applied_changed = False
        if (features := self.features.encode()) != self._stored_features:
            store.put(FEATURES, features)
            self._stored_features = features
