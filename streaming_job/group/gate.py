"""The gate of a job with merchant facts: holds transactions back until the facts that they need are known.

A transaction passes once every fact that it may see is known: all key groups have promised that the facts
that take effect up to its arrival are written. While it waits, the later transactions of its partition wait
too, and no more of that partition are read. The group writes its own facts as soon as they are due by its
clock (`facts.clock`), so that other groups do not wait for it. Where a card has very many transactions, they
also wait for labels that arrived before them (`GroupFacts.barriers`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from feature_store.merchants.catalogue import NEVER
from streaming_job.facts.clock import LogClock
from streaming_job.group.core import GroupCore
from streaming_job.log.records import Offsets, PartitionId, Records

if TYPE_CHECKING:
    from streaming_job.group.loop import Transactions

IDLE_AFTER_S = 1.0
"""Seconds without records after which the brokers are asked whether a partition has been read to its end."""


class Gate:
    """The gate of a key group: holds transactions back, and has the group's facts written."""

    def __init__(self, core: GroupCore, transactions: "Transactions", clock: Callable[[], float]) -> None:
        """Create a gate at which no transaction waits.

        Args:
            transactions: the group's partitions.
            clock: seconds; determines only when brokers are asked.
        """
        assert core.facts is not None
        self._core, self._facts, self._transactions, self._now = core, core.facts, transactions, clock
        self._waiting: list[Records] = []
        self._clock = LogClock(partition for _, partition in transactions.positions)
        self._last_seen = {tp: clock() for tp in transactions.positions}
        """When each partition last returned records, by `clock`."""

    def positions(self) -> Offsets:
        """Return the offset after the last transaction that passed, by partition."""
        return {
            **self._transactions.positions,
            **{tp: first for tp, (first, _) in self._first().items()},
        }

    def held(self) -> Offsets:
        """Return the offset after the last transaction read, for each partition with waiting transactions."""
        positions = self._transactions.positions
        return {tp: positions[tp] for tp in self._first()}

    def _first(self) -> dict[PartitionId, tuple[int, int]]:
        """Return offset and arrival of the first waiting transaction, by partition."""
        first_waiting: dict[PartitionId, tuple[int, int]] = {}
        for records in self._waiting:
            partitions, first = np.unique(records.partitions, return_index=True)
            for partition, row in zip(partitions.tolist(), first.tolist(), strict=True):
                tp = records.topic, partition
                first_waiting.setdefault(tp, (int(records.offsets[row]), int(records.arrivals[row])))
        return first_waiting

    def release(self, new: list[Records]) -> list[Records]:
        """Return those of the waiting and the new transactions that may be decided now."""
        now = self._now()
        for records in new:
            for partition in np.unique(records.partitions).tolist():
                self._last_seen[records.topic, partition] = now
        passed, self._waiting = _split([*self._waiting, *new], self._facts.table.horizon, {})
        if barriers := self._facts.barriers(passed):
            passed, stopped = _split(passed, NEVER, barriers)
            self._waiting = [*stopped, *self._waiting]
        for records in passed:
            self._clock.advance(records)
        self._clock.set_waiting(
            {partition: arrival for (_, partition), (_, arrival) in self._first().items()}
        )
        return passed

    def settle(self, read_to_ends: Callable[[Collection[str]], Iterator[Records]]) -> None:
        """Write the facts that are due; all released transactions must have been decided.

        The topics of labels and chargebacks are read to their ends first: labels of both become facts in the
        order of arrival, and a promise must not miss a label that arrived before the group's clock.

        Args:
            read_to_ends: yields all records of the given tables up to their current ends.
        """
        facts, seen = self._facts, self._facts.table.greatest_promise
        time = self._clock.time()
        if facts.has_due_facts(time, seen):
            self._fold_labels(read_to_ends)
            self._core.settle(time, seen)
        since = self._now() - IDLE_AFTER_S
        idle = {tp for tp, last in self._last_seen.items() if last <= since}
        if not idle or not facts.has_due_facts(self._clock.time({partition for _, partition in idle}), seen):
            return
        # labels before the ends: a transaction that arrived before a label read here keeps its partition from
        # being drained. Records written from here on have later arrivals than all records seen so far
        self._fold_labels(read_to_ends)
        positions, ends = self._transactions.positions, self._transactions.ends()
        drained = {
            partition for topic, partition in idle if positions[topic, partition] >= ends[topic, partition]
        }
        time = self._clock.time(drained)
        if facts.has_due_facts(time, seen):
            self._core.settle(time, seen)

    def _fold_labels(self, read_to_ends: Callable[[Collection[str]], Iterator[Records]]) -> None:
        for records in read_to_ends(self._facts.label_topics):
            self._core.fold(records)


def _split(
    batches: list[Records], horizon: int, barriers: Mapping[int, int]
) -> tuple[list[Records], list[Records]]:
    """Split transactions into those that pass and those that wait, partition by partition.

    A transaction waits if it arrived at or after `horizon`, the time before which all facts are known, or
    after the barrier of its partition (`GroupFacts.barriers`), or if an earlier transaction of its partition
    waits.
    """
    passed: list[Records] = []
    waiting: list[Records] = []
    stopped: set[int] = set()
    for records in batches:
        too_early = (records.arrivals >= horizon) | np.isin(records.partitions, list(stopped))
        for partition, last in barriers.items():
            too_early |= (records.partitions == partition) & (records.arrivals > last)
        if not too_early.any():
            passed.append(records)
            continue
        # a run is a series of rows of one partition: once a row waits, all following rows of its run wait
        edges = np.flatnonzero(np.diff(records.partitions, prepend=-1))
        for start, rows in zip(edges.tolist(), np.split(too_early, edges[1:]), strict=True):
            if rows.any():
                stopped.add(int(records.partitions[start]))
                too_early[start : start + rows.size] = np.maximum.accumulate(rows)
        for target, mask in ((passed, ~too_early), (waiting, too_early)):
            if mask.any():
                target.append(records.take(np.flatnonzero(mask)))
    return passed, waiting
