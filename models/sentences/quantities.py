"""Numbers, amounts and times in words. Pure."""

import math

UNITS = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0))


def number(value: float) -> str:
    """Two significant digits, or all of what stands before the point; no exponent."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    digits = max(0, 1 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def plural(count: float, what: str) -> str:
    """A count with its noun, whose plural ends in s."""
    told = number(count)
    return f"{told} {what}" if told == "1" else f"{told} {what}s"


def money(value: float, currency: str) -> str:
    """An amount, to the hundredth."""
    return f"{value:,.2f} {currency}"


def duration(seconds: float) -> str:
    """A time in the greatest unit of which it is at least two."""
    for unit, length in UNITS:
        if abs(seconds) >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"
