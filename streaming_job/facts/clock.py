"""The clock of a key group: the arrival up to which it has decided its part of the log. Pure.

A partition's clock is the arrival of the first transaction that waits in it for facts (`group.gate`), or of
its last decided one if none waits. Arrivals of a partition ascend, except when a broker's clock is set back:
then the partition's clock stands still until arrivals have caught up with it.

The group's clock is the least of its partitions' clocks. A partition that has been read to its end, and has
no waiting transaction, is left out: its clock stands still and would hold up the group's, although its next
records will arrive after all that have been read so far.
"""

from collections.abc import Collection, Iterable

import numpy as np

from feature_store.catalogue import HOUR_MS, MINUTE_MS
from feature_store.merchants.catalogue import MARGIN_MS, NEVER
from streaming_job.log.records import Records

SLACK_MS = 5 * MINUTE_MS
"""Time from the end of an hour until it counts as over. A partition that the group's clock leaves out may
still return records that arrived slightly before that clock: brokers' clocks differ, and producers send to
several partitions at the same time."""
BEGUN = -NEVER
"""Clock of a partition from which no record has been read yet."""
IDLE = NEVER
"""Clock of a group that has read all its partitions to their ends, and decided all that it has read."""


class LogClock:
    """The clocks of the group's own partitions."""

    def __init__(self, partitions: Iterable[int]) -> None:
        """Begin before all records."""
        self._decided = dict.fromkeys(partitions, BEGUN)
        self._waiting: dict[int, int] = {}

    def advance(self, records: Records) -> None:
        """Advance the clocks past transactions, which must be decided before `time` is called."""
        for partition in np.unique(records.partitions).tolist():
            newest = int(records.arrivals[records.partitions == partition].max())
            self._decided[partition] = max(self._decided[partition], newest)

    def set_waiting(self, waiting: dict[int, int]) -> None:
        """Set the arrival of the first waiting transaction, by partition."""
        self._waiting = waiting

    def time(self, drained: Collection[int] = ()) -> int:
        """Return the arrival before which all records have been decided, ms; IDLE if no partition remains.

        Args:
            drained: partitions that have been read to their ends; left out unless a transaction waits.
        """
        clocks = [
            max(self._waiting.get(partition, BEGUN), decided)
            for partition, decided in self._decided.items()
            if partition in self._waiting or partition not in drained
        ]
        return min(clocks, default=IDLE)


def hour_to_come(time: int) -> int:
    """Return the first hour, counted from 1970, that is not over at `time`, ms."""
    return (time - SLACK_MS) // HOUR_MS


def promise_of(hour: int) -> int:
    """Return the time, ms, before which only facts of the hours before `hour` take effect."""
    return (hour + 1) * HOUR_MS + MARGIN_MS


def hour_of(promise: int) -> int:
    """Return the hour such that a promise covers the facts of all earlier hours; inverse of `promise_of`."""
    return (promise - MARGIN_MS) // HOUR_MS - 1
