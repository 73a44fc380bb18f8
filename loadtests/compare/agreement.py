"""Whether two engines made the same alerts of the same input."""

from dataclasses import dataclass

from loadtests.compare.alerts import Alerts

TOLERANCE = 1e-9
"""Of a score: logarithms and exponentials differ in their last bits between languages."""


@dataclass(frozen=True)
class Agreement:
    """What an engine's alerts lack or have beside those of another."""

    missing: int
    """Transactions with an alert of the other one only."""
    unexpected: int
    """Transactions with an alert of this one only."""
    duplicated: int
    """Alerts of this one beyond the first of a transaction."""
    greatest_difference: float
    """Of two scores of one transaction."""

    @property
    def holds(self) -> bool:
        """Whether the two did the same job."""
        return not self.missing + self.unexpected + self.duplicated and self.greatest_difference <= TOLERANCE


def agreement(alerts: Alerts, reference: Alerts) -> Agreement:
    """Compare an engine's alerts with another's."""
    mine, other = alerts.by_transaction, reference.by_transaction
    both = mine.keys() & other.keys()
    return Agreement(
        missing=len(other.keys() - both),
        unexpected=len(mine.keys() - both),
        duplicated=alerts.duplicated,
        greatest_difference=max((abs(mine[name] - other[name]) for name in both), default=0.0),
    )
