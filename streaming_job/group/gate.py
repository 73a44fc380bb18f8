"""The gate before the decisions of a job that keeps merchant facts.

A transaction passes once every fact that it may see is known: when all key groups have promised that what
takes effect up to its arrival is written. While it waits, so do the later ones of its partition; nothing more
of that partition is taken. The group's own facts are written as soon as its part of the log is past them, so
that nobody waits for it.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from streaming_job.facts.clock import LogClock
from streaming_job.group.core import GroupCore
from streaming_job.log.records import Offsets, Place, Records

QUIET_S = 1.0
"""A partition that has shown nothing for so long may have nothing left: the brokers are asked."""


class Ends(Protocol):
    """The group's own partitions of the transactions."""

    @property
    def positions(self) -> Offsets:
        """By partition: the offset after what has been handed out."""

    def ends(self) -> Offsets:
        """By partition: where it ends now."""


class Gate:
    """Holds transactions back, and has the group's facts written."""

    def __init__(self, core: GroupCore, transactions: Ends, clock: Callable[[], float]) -> None:
        """Nothing waits.

        Args:
            core: of the group; keeps facts.
            transactions: the group's partitions.
            clock: seconds; decides about nothing but when brokers are asked.
        """
        assert core.facts is not None
        self._core, self._facts, self._transactions, self._wall = core, core.facts, transactions, clock
        self._waiting: list[Records] = []
        self._clock = LogClock(partition for _, partition in transactions.positions)
        self._heard = {place: clock() for place in transactions.positions}
        """When something was taken of a partition."""

    def positions(self) -> Offsets:
        """By partition: the offset after what has passed."""
        return {
            **self._transactions.positions,
            **{place: first for place, (first, _) in self._first().items()},
        }

    def held(self) -> Offsets:
        """Partitions of which something waits, and the offset after what was taken."""
        taken = self._transactions.positions
        return {place: taken[place] for place in self._first()}

    def _first(self) -> dict[Place, tuple[int, int]]:
        """Offset and arrival of the first transaction that waits, by partition."""
        found: dict[Place, tuple[int, int]] = {}
        for records in self._waiting:
            partitions, first = np.unique(records.partitions, return_index=True)
            for partition, row in zip(partitions.tolist(), first.tolist(), strict=True):
                place = records.topic, partition
                found.setdefault(place, (int(records.offsets[row]), int(records.arrivals[row])))
        return found

    def release(self, taken: list[Records]) -> list[Records]:
        """What may be decided now, of what has waited and what was taken."""
        now = self._wall()
        for records in taken:
            for partition in np.unique(records.partitions).tolist():
                self._heard[records.topic, partition] = now
        passed, self._waiting = _split([*self._waiting, *taken], self._facts.table.horizon)
        for records in passed:
            self._clock.see(records)
        self._clock.wait({partition: arrival for (_, partition), (_, arrival) in self._first().items()})
        return passed

    def settle(self, tables: Callable[[], Iterator[Records]]) -> None:
        """Have the facts written that are due; what was released has been decided.

        Args:
            tables: gives what tables have got up to where they stand now.
        """
        facts, seen = self._facts, self._facts.table.greatest_promise
        time = self._clock.time()
        if facts.has_news(time, seen):
            self._core.settle(time, seen)
        since = self._wall() - QUIET_S
        quiet = {place for place, heard in self._heard.items() if heard <= since}
        if not quiet or not facts.has_news(self._clock.time({partition for _, partition in quiet}), seen):
            return
        # whatever arrives from here on does so after what has been seen
        positions, ends = self._transactions.positions, self._transactions.ends()
        drained = {
            partition for topic, partition in quiet if positions[topic, partition] >= ends[topic, partition]
        }
        time = self._clock.time(drained)
        if facts.has_news(time, seen):
            for piece in tables():
                self._core.fold(piece)
            self._core.settle(time, seen)


def _split(found: list[Records], horizon: int) -> tuple[list[Records], list[Records]]:
    """What arrived before the horizon, and what waits: of each partition all from the first that does on."""
    passed: list[Records] = []
    waiting: list[Records] = []
    stopped: set[int] = set()
    for records in found:
        too_early = (records.arrivals >= horizon) | np.isin(records.partitions, list(stopped))
        if not too_early.any():
            passed.append(records)
            continue
        # partition by partition: once one row waits, all that follow in its run do
        edges = np.flatnonzero(np.diff(records.partitions, prepend=-1))
        for start, rows in zip(edges.tolist(), np.split(too_early, edges[1:]), strict=True):
            if rows.any():
                stopped.add(int(records.partitions[start]))
                too_early[start : start + rows.size] = np.maximum.accumulate(rows)
        for kept, mask in ((passed, ~too_early), (waiting, too_early)):
            if mask.any():
                kept.append(records.take(np.flatnonzero(mask)))
    return passed, waiting
