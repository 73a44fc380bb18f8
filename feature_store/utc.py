"""Times and days of the log (UTC)."""

from datetime import UTC, datetime

from feature_store.catalogue import DAY_MS


def moment_of(at_ms: int) -> datetime:
    """Return a time, given in ms since 1970-01-01 UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def time_of(at_ms: int) -> str:
    """Return a time as text, to the second."""
    return f"{moment_of(at_ms):%Y-%m-%dT%H:%M:%SZ}"


def day_of(at_ms: int) -> int:
    """Return the day of a time, days since 1970-01-01."""
    return at_ms // DAY_MS


def date_of(day: int) -> str:
    """Return a day as YYYY-MM-DD."""
    return moment_of(day * DAY_MS).date().isoformat()
