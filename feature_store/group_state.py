"""The state of one key group: cards, their events and profiles, in flat arrays.

A key group is the set of cards that one state partition holds. `GroupState` owns the arrays' growth and
offers the three things that happen to state: profile changes, transactions, alerts. It is a deterministic
function of the sequence of those calls, cut into calls in any way.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store import kernels
from feature_store.arena import Arena
from feature_store.cards import adopt, fill_index, locate
from feature_store.catalogue import DAY_MS
from feature_store.hot import BUCKETS_PER_CARD
from feature_store.layout import (
    ALERTED,
    CARDS,
    EMPTY,
    EVENTS,
    FIRST_CAPACITY,
    FREE_HOT,
    HOT_CARDS,
    HOT_IDS,
    LIVE_EVENTS,
    PROFILES,
)
from feature_store.profiles import apply_changes
from feature_store.suspicion import count_alerts

DEFAULT_LATENESS_MS = 7 * DAY_MS


@dataclass(frozen=True)
class Applied:
    """What a batch of n transactions came to, row by row."""

    features: NDArray[np.float64]
    """Shape (n, len(FEATURES)); rows of duplicates hold nothing."""
    duplicate: NDArray[np.bool_]
    """Whether the transaction had been accepted before, shape (n,)."""
    restarted: NDArray[np.bool_]
    """Whether the card had been forgotten and starts afresh here, shape (n,)."""
    late: NDArray[np.bool_]
    """Whether a later event of the card had been accepted before, shape (n,)."""
    version: NDArray[np.int32]
    """Profile version in force as an index into `GroupState.profiles`, or -1, shape (n,)."""


class GroupState:
    """Cards of one key group; the arrays live in an arena."""

    def __init__(self, arena: Arena, lateness_ms: int = DEFAULT_LATENESS_MS) -> None:
        self.arena = arena
        self._lateness_ms = lateness_ms
        self._scratch = kernels.scratch()
        self._walks = 1

    @property
    def counters(self) -> NDArray[np.int64]:
        """Counters of the group, by the numbers in `layout`."""
        return self.arena.arrays["counters"]

    @property
    def profiles(self) -> NDArray[np.void]:
        """Profile versions (PROFILE)."""
        return self.arena.arrays["profiles"]

    @property
    def card_count(self) -> int:
        """Cards known, with transactions or only with a profile."""
        return int(self.counters[CARDS])

    @property
    def event_count(self) -> int:
        """Events kept."""
        return int(self.counters[LIVE_EVENTS])

    def reserve(self, name: str, used: int, more: int) -> None:
        """See that an array of which `used` records are taken has room for `more`."""
        size = self.arena.arrays[name].size
        if used + more > size:
            self.arena.resize(name, max(used + more, size + size // 2))

    def reserve_events(self, more: int) -> None:
        """See that the events array has room for segments of `more` events."""
        self.reserve("events", int(self.counters[EVENTS]), more)

    def reserve_hot(self, more: int) -> None:
        """See that there is room for `more` hot cards."""
        hot = int(self.counters[HOT_CARDS])
        self.reserve("hots", hot, more)
        size = self.arena.arrays["hots"].size
        # whole rings: these grow with `hots`, not by a share of their own size
        for name, each in (("buckets", BUCKETS_PER_CARD), ("ids", HOT_IDS)):
            if self.arena.arrays[name].size != size * each:
                self.arena.resize(name, size * each)

    def _locate(self, lo: NDArray[np.uint64], hi: NDArray[np.uint64]) -> NDArray[np.int32]:
        arrays = self.arena.arrays
        # every row could be a new card; the index stays at most half full
        self.reserve("cards", self.card_count, lo.size)
        wanted = 2 * (self.card_count + lo.size)
        if wanted > arrays["index"].size:
            self.arena.resize("index", 1 << (wanted - 1).bit_length())
            fill_index(arrays["index"], arrays["cards"], self.card_count)
        numbers = np.empty(lo.size, dtype=np.int32)
        locate(arrays["index"], arrays["cards"], self.counters, lo, hi, numbers)
        return numbers

    def card_numbers(self, records: NDArray[np.void]) -> NDArray[np.int32]:
        """Number of each record's card; cards not met before are added.

        Args:
            records: records with fields lo and hi, shape (n,).
        """
        return self._locate(np.ascontiguousarray(records["lo"]), np.ascontiguousarray(records["hi"]))

    def prepare_replay(self, cards: int) -> None:
        """Make room for cards that deltas are going to name by number; see `adopt`."""
        self.reserve("cards", 0, cards)
        self.counters[CARDS] = cards

    def adopt(self, numbers: NDArray[np.int32], records: NDArray[np.void]) -> None:
        """Give numbers that a replay meets for the first time the identity in their record."""
        adopt(
            self.arena.arrays["cards"],
            numbers,
            np.ascontiguousarray(records["lo"]),
            np.ascontiguousarray(records["hi"]),
        )

    def fill_index(self) -> None:
        """Make the index anew from the cards."""
        size = max(self.arena.arrays["index"].size, 1 << (2 * self.card_count).bit_length())
        self.arena.resize("index", size)
        fill_index(self.arena.arrays["index"], self.arena.arrays["cards"], self.card_count)

    def change_profiles(self, changes: NDArray[np.void], numbers: NDArray[np.int32]) -> int:
        """Fold profile changes, in offset order.

        Args:
            changes: records of PROFILE, shape (n,).
            numbers: card number of each (`card_numbers`), shape (n,).

        Returns:
            How many turned up behind a transaction that should have seen them.
        """
        self.reserve("profiles", int(self.counters[PROFILES]), changes.size)
        return int(apply_changes(self.arena.arrays["cards"], self.profiles, self.counters, changes, numbers))

    def apply(self, batch: NDArray[np.void], numbers: NDArray[np.int32]) -> Applied:
        """Accept a batch of transactions and compute their features as of each one's arrival.

        Args:
            batch: records of TRANSACTION in log order, shape (n,).
            numbers: card number of each (`card_numbers`), shape (n,).
        """
        n = batch.size
        features = np.empty((n, kernels.N_FEATURES))
        status = np.zeros(n, dtype=np.uint8)
        late = np.zeros(n, dtype=np.bool_)
        version = np.empty(n, dtype=np.int32)
        done = 0
        while True:
            arrays = self.arena.arrays
            done = kernels.apply(
                arrays["cards"],
                arrays["events"],
                arrays["profiles"],
                arrays["hots"],
                arrays["buckets"],
                arrays["ids"],
                arrays["counters"],
                batch,
                numbers,
                done,
                self._lateness_ms,
                features,
                status,
                late,
                version,
                *self._scratch,
                self._walks,
            )
            if done == n:
                break
            if self.counters[FREE_HOT] == EMPTY and self.counters[HOT_CARDS] == arrays["hots"].size:
                self.reserve_hot(1)
            self.reserve("events", arrays["events"].size, (n - done) * FIRST_CAPACITY)
        self._walks += n
        return Applied(features, status == kernels.DUPLICATE, status == kernels.RESTARTED, late, version)

    def count_alerts(
        self,
        cards: NDArray[np.int32],
        arrivals: NDArray[np.int64],
        alerted: NDArray[np.bool_],
        restarted: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Enter the alerts of a batch that `apply` has taken.

        Args:
            cards: card number of each transaction in log order, shape (n,).
            arrivals: arrival of each, ms, shape (n,).
            alerted: which became alerts, shape (n,).
            restarted: `Applied.restarted`, shape (n,).

        Returns:
            suspicious_count of the day and in total of each alert, shape (alerts,) each.
        """
        rows = np.flatnonzero(alerted | restarted)
        alerted = alerted[rows]
        alerts = int(alerted.sum())
        self.reserve("alert_hours", int(self.counters[ALERTED]), alerts)
        day = np.empty(alerts, dtype=np.int64)
        total = np.empty(alerts, dtype=np.int64)
        arrays = self.arena.arrays
        count_alerts(
            arrays["cards"], arrays["alert_hours"], self.counters, cards[rows], arrivals[rows], alerted,
            restarted[rows], day, total,
        )  # fmt: skip
        return day, total
