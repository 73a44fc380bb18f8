"""Formatting of numbers, amounts and times for people. Pure."""

import math

UNITS = (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0))


def number(value: float) -> str:
    """Format a number with two significant digits, but at least all digits before the point; no exponent."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    digits = max(0, 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(count: float, noun: str) -> str:
    """Format a count with its noun, whose plural ends in s."""
    text = number(count)
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"


def money(value: float, currency: str) -> str:
    """Format an amount, to the hundredth."""
    return f"{value:,.2f} {currency}"


def duration(seconds: float) -> str:
    """Format a time in the largest unit of which it has at least two, else in seconds."""
    for unit, length in UNITS:
        if abs(seconds) >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"
