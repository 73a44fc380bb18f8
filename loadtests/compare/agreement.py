"""Comparison of two engines' alerts on the same input."""

from dataclasses import dataclass

from loadtests.compare.alerts import Alerts

TOLERANCE = 1.5e-9
"""Tolerance of scores: one step of rounding. Exponentials differ in their last bits between languages, and
half a step may lie between their results."""


@dataclass(frozen=True)
class Agreement:
    """Differences of an engine's alerts from those of a reference."""

    missing: int
    """Number of transactions with an alert of the reference only."""
    unexpected: int
    """Number of transactions with an alert of this engine only."""
    duplicated: int
    """Number of this engine's alerts beyond the first of a transaction."""
    greatest_difference: float
    """Greatest difference between the two engines' scores of a transaction."""

    @property
    def holds(self) -> bool:
        """Whether the alerts agree."""
        return not self.missing + self.unexpected + self.duplicated and self.greatest_difference <= TOLERANCE


def agreement(alerts: Alerts, reference: Alerts) -> Agreement:
    """Compare an engine's alerts with those of a reference."""
    scores, reference_scores = alerts.by_transaction, reference.by_transaction
    both = scores.keys() & reference_scores.keys()
    return Agreement(
        missing=len(reference_scores.keys() - both),
        unexpected=len(scores.keys() - both),
        duplicated=alerts.duplicated,
        greatest_difference=max((abs(scores[name] - reference_scores[name]) for name in both), default=0.0),
    )
