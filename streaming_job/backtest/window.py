"""The window of a backtest: the days whose decisions it compares, and the history before them. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime

from feature_store.catalogue import DAY_MS, WINDOWS
from feature_store.utc import date_of, day_of
from streaming_job.backtest.log import BacktestError, Extent


@dataclass(frozen=True)
class Window:
    """A range of arrivals, ms: the transactions in it are compared."""

    since: int
    """The candidate decides from this arrival on."""
    until: int
    """Arrivals at or after it do not count."""

    @property
    def days(self) -> float:
        """Length in days."""
        return (self.until - self.since) / DAY_MS


@dataclass(frozen=True)
class History:
    """The archived log before the window, from which the state at its beginning follows."""

    begins: int
    """Earliest archived arrival, ms."""
    is_whole: bool
    """Whether it reaches back to the log's first record; then no card's history is cut."""
    lateness_ms: int
    """Allowed lateness."""
    complete_from: int
    """Arrival from which on no partition lacks a transaction, ms."""

    @property
    def windows_whole_from(self) -> int:
        """Arrival from which all windows of all cards are whole, ms."""
        return self.begins if self.is_whole else self.complete_from + max(WINDOWS.values()) + self.lateness_ms


def choose(
    extents: Collection[Extent], lateness_ms: int, days: int, until: date | None
) -> tuple[Window, History]:
    """Return the last days of the archive, and the history before them.

    Args:
        extents: of the partitions of the transactions.
        days: number of calendar days (UTC); the last one may be a part of a day.
        until: first day that does not count any more; None: all days of the archive count.

    Raises:
        BacktestError: the archive has no transaction in these days.
    """
    if not extents:
        raise BacktestError("the archive has no transactions; run `fraud archive run`, or give its directory")
    begins, last = min(extent.least_ms for extent in extents), max(extent.most_ms for extent in extents)
    end = last + 1
    if until is not None:
        end = min(end, int(datetime.combine(until, datetime.min.time(), UTC).timestamp()) * 1000)
    # a partition that has lost or expired its first transactions begins later than others
    complete_from = max((extent.least_ms for extent in extents if extent.first > 0), default=begins)
    since = max(complete_from, (day_of(end - 1) - days + 1) * DAY_MS)
    if end <= complete_from:
        raise BacktestError(
            f"the archive does not have all transactions before {until}: all partitions are archived from "
            f"{date_of(day_of(complete_from))} on; give a later day"
        )
    is_whole = all(extent.first == 0 for extent in extents)
    return Window(since, end), History(begins, is_whole, lateness_ms, complete_from)
