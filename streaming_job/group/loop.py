"""One epoch of a key group. The order of statements is the guarantee.

    Step 1  take      transactions that have come, in the order of their partitions
    Step 2  tables    fold every table at least as far as it stands now, after the transactions were taken
    Step 3  decide    decode, features, scores, policy: state moves on, alerts and dead letters come of it
    Step 4  say       alerts, dead letters, progress and input offsets (Q) in one Kafka transaction
    Step 5  persist   what was decided goes to the state store, piece by piece
    Step 6  end       say the rest, then the last delta and the positions (P); Spark commits the state

P is written after everything up to it has been said, so Q is never behind P. After any failure the group goes
on from P, and decides in silence up to Q: decisions are a function of the log, so nothing is lost and nothing
doubled. Knows neither Kafka nor Spark: what it works on is handed to it.

In a job that keeps merchant facts a gate stands before step 3: a transaction waits until the facts that it
may see have been folded, and positions do not pass it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from feature_store.journal import PieceStore
from streaming_job.group.core import GroupCore
from streaming_job.group.gate import Gate
from streaming_job.log.records import Offsets, Records
from streaming_job.progress.outcome import Outcome
from streaming_job.runtime.failpoints import Step, reach

DELTA_ROWS = 65_536
"""Transactions and changes of a delta at most: encoding them takes about 30 ms, in which nothing is
decided."""
DELTA_S = 1.0
"""A delta holds no more than so many seconds: what is left for the end of an epoch, when alerts wait, takes 5
ms instead of 100."""
IDLE_S = 0.05
"""How long records are waited for before the loop looks whether its epoch is over."""
HELD_S = 0.005
"""The same while transactions wait for facts."""
LEAST_S = 0.1
"""What a group has of each epoch. One that had to be opened, or waited for a slot, may come when the epoch is
over; without time to fetch something it would never get on."""


class Transactions(Protocol):
    """The group's own partitions of the transactions."""

    @property
    def positions(self) -> Offsets:
        """By partition: the offset after what has been handed out."""

    def take(self, most: int, most_bytes: int, wait_s: float, linger_s: float) -> list[Records]:
        """What has come, in bounds."""

    def limit(self, ends: Offsets | None) -> None:
        """Hand out nothing at or beyond `ends` until it is lifted."""

    def ends(self) -> Offsets:
        """By partition: where it ends now."""


class Tables(Protocol):
    """Profiles and rollouts."""

    @property
    def positions(self) -> Offsets:
        """By partition: the offset after what has been handed out."""

    def lag(self) -> dict[str, int]:
        """By topic: records to be read before anything is decided."""

    def arrived(self, wait_s: float = 0.0) -> list[Records]:
        """A piece of what has come."""

    def up_to_now(self) -> Iterator[Records]:
        """Everything up to where the tables stand now, in pieces."""


class Voice(Protocol):
    """Says what has come of the group's records, each exactly once."""

    def say(self, take_outcome: Callable[[], Outcome], ends: Offsets, table_lag: dict[str, int]) -> None:
        """Write one Kafka transaction."""


class Epoch(Protocol):
    """The time between two checkpoints of the state."""

    def is_over(self) -> bool:
        """Whether the driver has ended it."""

    def ask_for_end(self) -> None:
        """Have the driver end it."""


@dataclass(frozen=True)
class Pace:
    """How much at a time, and how often."""

    max_records: int
    max_bytes: int
    linger_s: float
    commit_interval_s: float
    heartbeat_s: float
    epoch_bytes: int


class Follower:
    """A key group at work: it lives as long as its process serves the group, from epoch to epoch."""

    def __init__(
        self,
        core: GroupCore,
        transactions: Transactions,
        tables: Tables,
        voice: Voice,
        pace: Pace,
        said: Offsets,
        silent_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on after an epoch, or from P after a failure.

        Args:
            core: state and decisions.
            transactions: at P.
            tables: at P.
            voice: says what came of it.
            pace: bounds and intervals.
            said: Q by partition of the transactions.
            silent_s: how long the group has said nothing.
            clock: seconds; decides about nothing but when something is said.
        """
        self.core, self._transactions, self._tables, self._voice = core, transactions, tables, voice
        self._pace, self._clock = pace, clock
        self._said = {place: said.get(place, 0) for place in transactions.positions}
        """Q, as far as positions have not passed it."""
        self._gate = None if core.facts is None else Gate(core, transactions, clock)
        """Holds transactions back until the merchant facts that they may see are known."""
        self._limit: Offsets = {}
        self._silent = self._behind_q()
        self._set_limit()
        self._committed = self._positions()
        """Positions at the last Kafka transaction, or P: all before has been said."""
        self._spoke = clock() - silent_s

    def run(self, epoch: Epoch, store: PieceStore) -> Offsets:
        """Follow the log until the epoch is over; returns P.

        Raises:
            FraudError: the group cannot go on; nothing of the epoch is persisted then.
        """
        core, written = self.core, 0
        begun = persisted = self._clock()
        while self._clock() - begun < LEAST_S or not epoch.is_over():
            if self._tables.lag():
                for piece in self._tables.arrived(IDLE_S):
                    core.fold(piece)
            else:
                self._take_and_decide()
            if self._is_due():
                self._say()
            if core.pending >= DELTA_ROWS or self._clock() - persisted >= DELTA_S:
                # Step 5: persist
                written += core.append(store)
                persisted = self._clock()
                if written > self._pace.epoch_bytes:
                    epoch.ask_for_end()
        # Step 6: end
        if self._positions() != self._committed or core.outcome.facts:
            self._say()
        core.seal(store, self._committed)
        reach(Step.DELTA)
        return self._committed

    def _take_and_decide(self) -> None:
        pace, core = self._pace, self.core
        # Step 1: take
        wait_s = min(IDLE_S, max(0.0, self._spoke + pace.commit_interval_s - self._clock())) or IDLE_S
        if self._gate is not None and self._gate.held():
            wait_s = min(wait_s, HELD_S)
        taken = self._transactions.take(pace.max_records, pace.max_bytes, wait_s, pace.linger_s)
        core.watch.lap("take")
        if taken:
            reach(Step.TAKEN)
        # Step 2: tables
        for piece in self._tables.up_to_now() if taken else self._tables.arrived():
            core.fold(piece)
        # Step 3: decide
        for records in taken if self._gate is None else self._gate.release(taken):
            core.decide(records, silent=self._silent)
        if self._gate is not None:
            self._gate.settle(self._tables.up_to_now)
        self._silent = self._silent and self._behind_q()
        self._set_limit()

    def _set_limit(self) -> None:
        """Have nothing handed out beyond Q while silent, nor of a partition of which something waits."""
        limit = dict(self._said) if self._silent else {}
        for place, taken in self._gate.held().items() if self._gate is not None else ():
            limit[place] = min(taken, limit.get(place, taken))
        if limit != self._limit:
            self._limit = limit
            self._transactions.limit(limit or None)

    def _decided(self) -> Offsets:
        """Positions of the transactions, those that wait left out."""
        return self._transactions.positions if self._gate is None else self._gate.positions()

    def _behind_q(self) -> bool:
        positions = self._decided()
        return any(positions[place] < offset for place, offset in self._said.items())

    def _is_due(self) -> bool:
        outcome = self.core.outcome
        if outcome.alerts or outcome.dead_letters or outcome.facts:
            return True
        silent_s = self._clock() - self._spoke
        if silent_s < self._pace.commit_interval_s:
            return False
        return silent_s >= self._pace.heartbeat_s or self._positions() != self._committed

    def _positions(self) -> Offsets:
        return {**self._decided(), **self.core.taken_in(self._tables.positions)}

    def _say(self) -> None:
        # Step 4: say
        positions = self._positions()
        # nothing goes back behind Q; before that, all has been said
        ends = {place: max(offset, self.core.quiet.get(place, 0)) for place, offset in positions.items()}
        self._voice.say(self.core.take_outcome, ends, self._tables.lag())
        self._committed, self._spoke = positions, self._clock()
