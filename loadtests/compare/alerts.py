"""The alerts of an engine's run, and how two engines' alerts differ."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson

from loadtests.rig.watch import ReceivedAlert


@dataclass(frozen=True)
class Alerts:
    """Received alerts, in the order of receipt."""

    transaction_ids: list[str]
    scores: list[float]
    arrivals: npt.NDArray[np.int64]
    """Kafka timestamps of the transactions, ms."""
    received: npt.NDArray[np.float64]
    """Times of receipt, ms since 1970-01-01 UTC."""

    @staticmethod
    def of(received: Sequence[ReceivedAlert]) -> "Alerts":
        """Parse received alerts."""
        rows = [orjson.loads(value) for value, _ in received]
        return Alerts(
            [row["transaction_id"] for row in rows],
            [row["score"] for row in rows],
            np.array([row["arrival_time"] for row in rows], dtype=np.int64),
            np.array([at_ns for _, at_ns in received], dtype=np.float64) / 1e6,
        )

    def __len__(self) -> int:
        return len(self.transaction_ids)

    @property
    def by_transaction(self) -> dict[str, float]:
        """Scores by transaction_id."""
        return dict(zip(self.transaction_ids, self.scores, strict=True))

    @property
    def duplicated(self) -> int:
        """Number of alerts beyond the first one of their transactions."""
        return sum(count - 1 for count in Counter(self.transaction_ids).values())


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
