"""The result of one guard, with its evidence: finite, rounded numbers; an undefined one is null."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class GuardOutcome(StrEnum):
    """Outcome of a guard or of a verdict; missing data never counts as a pass."""

    PASS = "pass"
    """The data prove that the limit is kept."""
    BREACH = "breach"
    """The data prove that the limit is broken."""
    INSUFFICIENT = "insufficient"
    """The data prove neither: wait. A rollout does not advance on this outcome."""

    @staticmethod
    def of(parts: Iterable["GuardOutcome"]) -> "GuardOutcome":
        """Return breach if any part is breach, pass if there are parts and all pass, else insufficient."""
        outcomes = set(parts)
        if GuardOutcome.BREACH in outcomes:
            return GuardOutcome.BREACH
        return GuardOutcome.PASS if outcomes == {GuardOutcome.PASS} else GuardOutcome.INSUFFICIENT


@dataclass(frozen=True)
class Finding:
    """Result of one guard for a challenger."""

    guard: str
    outcome: GuardOutcome
    has_data: bool
    """Whether the guard has had data that it can use; a canary may not begin before every guard has."""
    detail: str
    """Numbers and limit, for people."""
    evidence: Mapping[str, Any]
    """JSON: the counts used and the numbers computed from them, finite; null where undefined."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding in built-in types."""
        return {
            "guard": self.guard,
            "verdict": self.outcome.value,
            "has_data": self.has_data,
            "detail": self.detail,
            "evidence": dict(self.evidence),
        }


def bets(wealth: dict[str, Any], target: float) -> dict[str, Any]:
    """Return the evidence of a guard's bets (decision 40) as decimal logarithms: wealth may overflow float64.

    Args:
        wealth: natural logarithm of the wealth, by name of the bet.
        target: natural logarithm of the wealth at which a bet decides.
    """
    tens = {name: round(float(log) / math.log(10), 6) for name, log in wealth.items()}
    return {"log10_wealth": tens, "log10_target": round(target / math.log(10), 6)}


def ratio_of(above: float, below: float) -> float | None:
    """Return `above / below`, rounded to six decimals; None if it is not finite."""
    if not below:
        return None
    quotient = above / below
    return round(quotient, 6) if math.isfinite(quotient) else None


def text(value: float | None) -> str:
    """Format a number for people."""
    return "unknown" if value is None else f"{value:.3g}"
