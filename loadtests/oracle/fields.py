"""Checks of the fields of rollout events and policies; every violation has the same reason."""

from typing import Any

MOST_WHOLE = 2**53 - 1


def require(condition: bool) -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError


def text(value: Any, least: int = 1, most: int = 64) -> str:
    """Return a text of a length within bounds; see `require`."""
    require(isinstance(value, str) and least <= len(value) <= most)
    return str(value)


def whole(value: Any, least: int, most: int = MOST_WHOLE) -> int:
    """Return a whole number, which JSON may also write as 6.0; booleans are refused."""
    require(isinstance(value, int | float) and not isinstance(value, bool) and value == int(value))
    require(least <= value <= most)
    return int(value)
