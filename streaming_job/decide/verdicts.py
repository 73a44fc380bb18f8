"""The verdicts of a policy on transactions: its rules (`models.rules`), vectorised."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.policy import ESCALATED, RULES, Policy
from models.rules.rule import KnownBlock


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
        return any(rule == ESCALATED or RULES[rule].declines(self.policy) for rule in rules)

    @property
    def declined(self) -> NDArray[np.bool_]:
        """Whether a transaction is a decline regardless of the card's earlier alerts, shape (n,)."""
        out = np.zeros(self.alerts.size, dtype=np.bool_)
        for name, rows in self.fired.items():
            if RULES[name].declines(self.policy):
                out |= rows
        return out


def verdicts(policy: Policy, scores: NDArray[np.float64], known: KnownBlock) -> Verdicts:
    """Apply a policy to n transactions.

    Args:
        scores: NaN where the model failed, so that the other rules decide alone, shape (n,).
        known: other inputs of the rules, n rows.
    """
    fired = {}
    for name, rule in RULES.items():
        if (rows := rule.rows(policy, scores, known)) is not None:
            fired[name] = rows
    return Verdicts(policy, fired, np.logical_or.reduce(list(fired.values())))
