"""Finite, rounded numbers of a guard; an undefined one is null in the evidence, "unknown" in the text."""

import math
from typing import Any


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
