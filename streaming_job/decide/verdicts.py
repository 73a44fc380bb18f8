"""The verdicts of a policy on transactions: the rules of `models.policy`, vectorised."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import COLUMN
from feature_store.layout import BLOCKED, CLOSED
from models.policy import (
    BLOCKED_CARD,
    CLOSED_CARD,
    DECLINE,
    ESCALATED,
    IGNORE,
    MISSING_PROFILE,
    REVIEW,
    SCORE,
    VELOCITY_1H,
    VELOCITY_1M,
    VELOCITY_5M,
    Policy,
)

_WINDOWS = {
    window: (COLUMN[f"count_{window}"], COLUMN[f"arrivals_{window}"]) for window in ("1m", "5m", "1h")
}
_VELOCITIES = {
    VELOCITY_1M: ("1m", "max_count_1m"),
    VELOCITY_5M: ("5m", "max_count_5m"),
    VELOCITY_1H: ("1h", "max_count_1h"),
}
_STANDINGS = {BLOCKED_CARD: (BLOCKED, "blocked"), CLOSED_CARD: (CLOSED, "closed")}


class Facts:
    """The inputs of the rules beside the score, for n transactions; shared by all policies."""

    def __init__(
        self, features: NDArray[np.float64], standing: NDArray[np.uint8], version: NDArray[np.int32]
    ) -> None:
        """Hold the inputs; counts are computed on demand.

        Args:
            features: shape (n, c); the first columns are those of COLUMN.
            standing: status of the cards (index into `feature_store.layout.STATUSES`), shape (n,).
            version: profile version in force, -1 if there is none, shape (n,).
        """
        self._features, self.standing, self.without_profile = features, standing, version < 0
        self._counts: dict[str, NDArray[np.float64]] = {}

    def count(self, window: str) -> NDArray[np.float64]:
        """Return the card's count in a window, by event time or arrival, whichever is greater, shape (n,)."""
        if window not in self._counts:
            by_event_time, by_arrival = _WINDOWS[window]
            self._counts[window] = np.maximum(self._features[:, by_event_time], self._features[:, by_arrival])
        return self._counts[window]


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of a policy on n transactions."""

    policy: Policy
    fired: Mapping[str, NDArray[np.bool_]]
    """Rule that the policy uses, except ESCALATED -> whether it fired, shape (n,); in the order of
    `models.policy.RULES`."""
    alerts: NDArray[np.bool_]
    """Whether a transaction is an alert by this policy, shape (n,)."""

    def rules(self, row: int, day: int) -> tuple[str, ...]:
        """Return the rules that fired for a row whose alert would be the card's `day`-th in 24 hours."""
        after = self.policy.escalate_after
        fired = [rule for rule, rows in self.fired.items() if rows[row]]
        if fired and after is not None and day >= after:
            fired.append(ESCALATED)
        return tuple(fired)

    def declines(self, rules: tuple[str, ...]) -> bool:
        """Return whether an alert with these rules is a decline."""
        return ESCALATED in rules or any(
            rule in rules and getattr(self.policy, mode) == DECLINE for rule, (_, mode) in _STANDINGS.items()
        )

    @property
    def declined(self) -> NDArray[np.bool_]:
        """Whether a transaction is a decline regardless of the card's earlier alerts, shape (n,)."""
        out = np.zeros(self.alerts.size, dtype=np.bool_)
        for rule, (_, mode) in _STANDINGS.items():
            if getattr(self.policy, mode) == DECLINE:
                out |= self.fired[rule]
        return out


def verdicts(policy: Policy, scores: NDArray[np.float64], facts: Facts) -> Verdicts:
    """Apply a policy to n transactions.

    Args:
        policy: the policy.
        scores: NaN where the model failed, so that the other rules decide alone, shape (n,).
        facts: other inputs of the rules, n rows.
    """
    fired = {SCORE: scores >= policy.threshold}
    for rule, (window, name) in _VELOCITIES.items():
        if (maximum := getattr(policy, name)) is not None:
            fired[rule] = facts.count(window) > float(maximum)
    for rule, (standing, mode) in _STANDINGS.items():
        if getattr(policy, mode) != IGNORE:
            fired[rule] = facts.standing == standing
    if policy.missing_profile == REVIEW:
        fired[MISSING_PROFILE] = facts.without_profile
    return Verdicts(policy, fired, np.logical_or.reduce(list(fired.values())))
