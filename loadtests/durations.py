"""Parsers of durations (90s, 5m, 2h, 7d) and speeds (10, max)."""

import re

from feature_store.errors import FraudError

_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(text: str) -> float:
    """Parse a duration like 500ms, 90, 90s, 5m, 2h or 7d; returns seconds.

    Raises:
        FraudError: not a duration, or zero.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\s*", text)
    if not match or not float(match[1]):
        raise FraudError(f"{text!r} is not a duration; write for example 90s, 5m, 2h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def speed(text: str) -> float:
    """Parse the option `--speed`: a positive factor, or max, which is infinity.

    Raises:
        FraudError: it is neither.
    """
    try:
        factor = float("inf") if text == "max" else float(text)
    except ValueError:
        factor = 0.0
    if not factor > 0:
        raise FraudError(f"--speed {text} is neither a positive number nor max")
    return factor
