"""How far a key group has come in its part of the log, by arrival. Pure.

A partition's clock is the arrival of its first transaction that waits to be decided, else of its last one
that was; arrivals of a partition do not go back, but for what a broker's clock does. A partition that has
nothing left stands still, and is left out: the caller knows then that nothing with an earlier arrival comes.
"""

from collections.abc import Collection, Iterable

import numpy as np

from feature_store.catalogue import HOUR_MS, MINUTE_MS
from feature_store.merchants.catalogue import MARGIN_MS, NEVER
from streaming_job.log.records import Records

SLACK_MS = 5 * MINUTE_MS
"""An hour counts as over so long after its end: brokers' clocks differ, and producers send to several
partitions side by side."""
BEGUN = -NEVER
"""Clock of a partition that has shown nothing yet."""
IDLE = NEVER
"""Clock of a group that has nothing left."""


class LogClock:
    """Clocks of the group's own partitions."""

    def __init__(self, partitions: Iterable[int]) -> None:
        """Nothing has been seen."""
        self._decided = dict.fromkeys(partitions, BEGUN)
        self._waiting: dict[int, int] = {}

    def see(self, records: Records) -> None:
        """Take in that transactions have been decided."""
        for partition in np.unique(records.partitions).tolist():
            newest = int(records.arrivals[records.partitions == partition].max())
            self._decided[partition] = max(self._decided[partition], newest)

    def wait(self, waiting: dict[int, int]) -> None:
        """Take in which transactions wait: the arrival of the first, by partition."""
        self._waiting = waiting

    def time(self, drained: Collection[int] = ()) -> int:
        """Everything that arrived before it has been decided, ms; IDLE if nothing is left.

        Args:
            drained: partitions that have nothing left.
        """
        clocks = [
            max(self._waiting.get(partition, BEGUN), decided)
            for partition, decided in self._decided.items()
            if partition in self._waiting or partition not in drained
        ]
        return min(clocks, default=IDLE)


def hour_to_come(time: int) -> int:
    """The first hour that is not over at a time, ms."""
    return (time - SLACK_MS) // HOUR_MS


def promise_of(hour: int) -> int:
    """What takes effect before it, ms, became known before an hour."""
    return (hour + 1) * HOUR_MS + MARGIN_MS


def hour_of(promise: int) -> int:
    """Inverse of `promise_of`: facts of the hours before it are written."""
    return (promise - MARGIN_MS) // HOUR_MS - 1
