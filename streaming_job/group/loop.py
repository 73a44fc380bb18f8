"""The loop of a key group. The order of its steps makes the output exactly-once.

    Step 1  read      new transactions, each partition in the order of offsets
    Step 2  tables    fold profiles and rollouts up to their current ends, after the transactions were read
    Step 3  decide    decode, features, scores, policy: updates the state, returns alerts and dead letters
    Step 4  commit    alerts, dead letters, progress and input offsets (Q) in one Kafka transaction
    Step 5  persist   write the changes of the state, piece by piece
    Step 6  cut       at the end of an epoch: commit the rest, then write the last delta and the positions (P)

Steps 1 to 5 are a turn (`Follower.advance`), step 6 comes between two turns (`Follower.cut`), and the next
turn follows at once, while Spark commits what was written up to the cut (`group.serving`).

P is written after everything up to it has been committed, so Q is never behind P. After a failure the group
continues from P and decides in silence up to Q: decisions are a function of the log, so nothing is lost or
duplicated. The loop knows neither Kafka nor Spark; its inputs and outputs are arguments.

In a job that keeps merchant facts there is a gate before step 3: a transaction waits until the facts that it
may see have been folded, and positions do not pass a waiting transaction.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feature_store.state.journal import PieceSink
from streaming_job.group.core import GroupCore
from streaming_job.group.gate import Gate
from streaming_job.group.positions import require_reach
from streaming_job.log.errors import confirmed
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.outcome import Outcome
from streaming_job.runtime.failpoints import Failpoint, reach

DELTA_ROWS = 65_536
"""Number of transactions and profile changes after which a delta is written: encoding them takes about 30 ms,
during which nothing is decided."""
DELTA_S = 1.0
"""Seconds after which a delta is written, so that the last one before a cut is small: it holds up alerts for
5 ms instead of 100."""
IDLE_S = 0.05
"""Maximum wait for records in a turn, after which a cut can follow."""
HELD_S = 0.005
"""Maximum wait for records while transactions wait for facts."""


class Transactions(Protocol):
    """The group's own partitions of the transactions."""

    @property
    def positions(self) -> Offsets:
        """Offset after the last record returned, by partition."""

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        """Return the new records that are there, within bounds; wait only for the first."""

    def limit(self, ends: Offsets | None) -> None:
        """Return no records at or beyond `ends`; None removes the limit."""

    def ends(self) -> Offsets:
        """Return the current end offsets by partition."""


class Tables(Protocol):
    """The tables that the group folds: profiles, rollouts, labels and facts."""

    @property
    def positions(self) -> Offsets:
        """Offset after the last record returned, by partition."""

    def lag(self) -> dict[str, int]:
        """Return by topic the number of records to be read before the group decides; empty if none."""

    def poll(self, wait_s: float = 0.0) -> list[Records]:
        """Return some new records."""

    def look(self, topics: Collection[str]) -> None:
        """Begin to look up the current ends of `topics`, which the next `read_to_ends` of them then uses."""

    def read_to_ends(self, topics: Collection[str]) -> Iterator[Records]:
        """Yield all records of `topics` up to their current ends, and new records of the other tables."""


class Committer(Protocol):
    """The writer of the group's output, which writes each outcome exactly once."""

    def commit(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """Write one Kafka transaction."""


@dataclass(frozen=True)
class Pace:
    """The sizes and intervals of the loop."""

    max_records: int
    max_bytes: int
    spacing_s: float
    commit_interval_s: float
    heartbeat_s: float


class Follower:
    """The loop of a key group; it lives as long as its process serves the group."""

    def __init__(
        self,
        core: GroupCore,
        transactions: Transactions,
        tables: Tables,
        committer: Committer,
        pace: Pace,
        output_offsets: Offsets,
        silent_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        until: Offsets | None = None,
    ) -> None:
        """Continue from P; if P is behind Q, decide in silence up to Q.

        Args:
            transactions: the group's partitions of the transactions, at P.
            tables: the tables, at P.
            output_offsets: Q by partition of the transactions.
            silent_s: seconds since the group's last commit.
            clock: seconds; determines when commits and deltas are written, but not what is decided.
            until: read the transactions only up to these offsets, by partition; None: without end. Offsets of
                tables, which end there by themselves, belong to what has to be done.
        """
        self._ends = until or {}
        self._until = {tp: offset for tp, offset in self._ends.items() if tp in transactions.positions}
        self.core, self._transactions, self._tables, self._committer = core, transactions, tables, committer
        self._pace, self._clock = pace, clock
        self._output_offsets = {tp: output_offsets.get(tp, 0) for tp in transactions.positions}
        """Q by partition, as it was at the start."""
        self._gate = None if core.facts is None else Gate(core, transactions, clock)
        """Holds transactions back until the merchant facts that they may see are known."""
        self._limit: Offsets = {}
        self._stays_silent = False
        self._silent = self._behind_q()
        self._set_limit()
        self._committed = self.positions
        """Positions at the last commit; P, if there was none yet. All output before them is written."""
        self._last_commit = clock() - silent_s
        self._persisted = clock()
        self._taken = -math.inf
        """When the last mini-batch began."""

    def stay_silent(self, up_to: Offsets) -> None:
        """Read the transactions only up to these offsets, and decide them in silence.

        Args:
            up_to: by partition; a later call may move them on.
        """
        self._output_offsets |= {tp: up_to.get(tp, offset) for tp, offset in self._output_offsets.items()}
        self._stays_silent = self._silent = True
        self._set_limit()

    def advance(self, sink: PieceSink) -> None:
        """Take one turn: read what is there, decide it, commit if that is due, and write changes if due.

        Raises:
            FraudError: the group cannot continue; the Kafka transactions committed so far stay.
        """
        core = self.core
        if self._tables.lag():
            for records in self._tables.poll(IDLE_S):
                core.fold(records)
            core.watch.lap("tables")
        else:
            self._take_and_decide()
        if self._is_due():
            self._commit()
        if core.pending >= DELTA_ROWS or self._clock() - self._persisted >= DELTA_S:
            # Step 5: persist
            core.append(sink)
            self._persisted = self._clock()

    def cut(self, sink: PieceSink) -> Offsets:
        """Commit the rest, and write the last changes of an epoch; return P."""
        # Step 6: cut
        if self.positions != self._committed or any(self.core.outcome.records.values()):
            self._commit()
        self.core.seal(sink, self._committed)
        self._persisted = self._clock()
        return self._committed

    def _take_and_decide(self) -> None:
        pace, core = self._pace, self.core
        # Step 1: read
        if (early_s := self._taken + pace.spacing_s - self._clock()) > 0:
            time.sleep(early_s)
        wait_s = min(IDLE_S, max(0.0, self._last_commit + pace.commit_interval_s - self._clock())) or IDLE_S
        if self._gate is not None and self._gate.held():
            wait_s = min(wait_s, HELD_S)
        batches = self._transactions.take(pace.max_records, pace.max_bytes, wait_s)
        core.watch.lap("take")
        if batches:
            self._taken = self._clock()
            reach(Failpoint.TAKEN)
        if self._silent and not any(self._before_q(records).any() for records in batches):
            # nothing new may get an offset below Q: it would be decided in silence
            confirmed(lambda: require_reach(self._output_offsets, self._transactions.ends()))
        # Step 2: tables
        tables = self._tables
        if batches:
            tables.look(core.decisive_tables)
            if self._gate is None:  # else it decides what is decoded
                core.prepare(batches)
        for table_records in tables.read_to_ends(core.decisive_tables) if batches else tables.poll():
            core.fold(table_records)
        core.watch.lap("tables")
        # Step 3: decide
        for records in batches if self._gate is None else self._gate.release(batches):
            for part, silent in self._by_silence(records):
                core.decide(part, silent=silent)
        if self._gate is not None:
            self._gate.settle(tables.read_to_ends)
        self._silent = self._stays_silent or (self._silent and self._behind_q())
        self._set_limit()

    def _by_silence(self, records: Records) -> Iterator[tuple[Records, bool]]:
        """Yield the transactions before Q and the others, and whether they are decided in silence.

        A partition goes on beyond its Q while another one is behind: what the latter waits for (`Gate`) may
        depend on it, if its Q is that of a predecessor.
        """
        if not self._silent:
            yield records, False
            return
        before = self._before_q(records)
        for silent in (True, False):
            if (rows := np.flatnonzero(before == silent)).size:
                yield records if rows.size == len(records) else records.take(rows), silent

    def _before_q(self, records: Records) -> NDArray[np.bool_]:
        partitions, inverse = np.unique(records.partitions, return_inverse=True)
        ends = [self._output_offsets[records.topic, partition] for partition in partitions.tolist()]
        return records.offsets < np.array(ends, np.int64)[inverse]

    def _set_limit(self) -> None:
        """Limit reading while the group stays silent; stop reading partitions with waiting transactions."""
        limit = dict(self._until)
        for tp, offset in self._output_offsets.items() if self._stays_silent else ():
            limit[tp] = min(offset, limit.get(tp, offset))
        for tp, position in self._gate.held().items() if self._gate is not None else ():
            limit[tp] = min(position, limit.get(tp, position))
        if limit != self._limit:
            self._limit = limit
            self._transactions.limit(limit or None)

    def _decided(self) -> Offsets:
        """Return the offset after the last transaction that does not wait, by partition."""
        return self._transactions.positions if self._gate is None else self._gate.positions()

    def _behind_q(self) -> bool:
        positions = self._decided()
        return any(positions[tp] < offset for tp, offset in self._output_offsets.items())

    def _is_due(self) -> bool:
        if self.core.outcome.is_prompt:
            return True
        silent_s = self._clock() - self._last_commit
        if silent_s < self._pace.commit_interval_s:
            return False
        return silent_s >= self._pace.heartbeat_s or self.positions != self._committed

    @property
    def positions(self) -> Offsets:
        """The offsets up to which everything is decided and folded, by partition."""
        return {**self._decided(), **self.core.folded_positions(self._tables.positions)}

    @property
    def is_done(self) -> bool:
        """Whether all that is to be decided and folded is."""
        if not self._ends:
            return False
        positions = self.positions
        return all(positions[tp] == end for tp, end in self._ends.items() if tp in positions)

    def _commit(self) -> None:
        # Step 4: commit
        positions = self.positions
        # committed offsets never go back behind Q: all output before Q is written
        ends = {tp: max(offset, self.core.silence.output.get(tp, 0)) for tp, offset in positions.items()}
        self._committer.commit(self.core.take_outcome, ends, self._tables.lag())
        self.core.watch.lap("transaction")  # counts for the next outcome: this one has been written
        self._committed, self._last_commit = positions, self._clock()
