"""The state of one key group: cards, their events and profiles, in flat arrays.

A key group is the set of cards that one task decides. `GroupState` offers the operations on the state:
profile changes, transactions, alerts, and eviction, which changes no result. The state is a deterministic
function of the sequence of inputs, however they are split into calls.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.kernels import eviction, feature_kernel
from feature_store.kernels.profiles import apply_changes
from feature_store.kernels.suspicion import FOR_EVER, count_alerts
from feature_store.layout import ALERTED, EMPTY, FIRST_CAPACITY, FREE_HOT, HOT_CARDS, MOST_EVENTS, PROFILES
from feature_store.state.arena import Arena
from feature_store.state.group_arrays import GroupArrays

DEFAULT_LATENESS_MS = 7 * DAY_MS


@dataclass(frozen=True)
class BatchFeatures:
    """Features and outcomes of a batch of n transactions."""

    features: NDArray[np.float64]
    """Features of the accepted transactions, in the order of the batch, shape (accepted, c)."""
    duplicate: NDArray[np.bool_]
    """Whether the transaction was accepted before with the same content, shape (n,)."""
    conflicting: NDArray[np.bool_]
    """Whether its id was accepted before with other content only; the transaction is accepted, shape (n,)."""
    restarted: NDArray[np.bool_]
    """Whether the card was forgotten and starts afresh at this row, shape (n,)."""
    late: NDArray[np.bool_]
    """Whether an event of the card with a later event time was accepted before, shape (n,)."""
    version: NDArray[np.int32]
    """Profile version in force as an index into `GroupState.profiles`, shape (n,); -1: there is none,
    UNKNOWN_VERSION: compaction may have removed it."""
    standing: NDArray[np.uint8]
    """Status of the card by its profile (index into STATUSES), shape (n,).

    After a delete: the last status. Without a profile: active.
    """

    def by_row(self) -> NDArray[np.float64]:
        """Return the features of every transaction, shape (n, c); NaN for duplicates."""
        if not self.duplicate.any():
            return self.features
        features = np.full((self.duplicate.size, self.features.shape[1]), np.nan)
        features[~self.duplicate] = self.features
        return features


@dataclass(frozen=True)
class AlertTerms:
    """Escalation and cooldown of n rows, from their policies."""

    declined: NDArray[np.bool_]
    """Alerts that a cooldown never suppresses, shape (n,)."""
    escalate_after: NDArray[np.int64]
    """Value of `AlertCounts.day` from which an alert is treated as declined; 0: never, shape (n,)."""
    cooldown_ms: NDArray[np.int64]
    """Time after the last alert sent, ms, in which alerts are suppressed; 0: never, shape (n,)."""


@dataclass(frozen=True)
class AlertCounts:
    """Alert counts of n rows; a row without an alert has the counts that it would have as an alert."""

    day: NDArray[np.int64]
    """Alerts of the card in the 24 clock hours up to this alert, itself included, shape (n,)."""
    total: NDArray[np.int64]
    """Alerts of the card since it (re)started, this one included, shape (n,)."""
    last_sent_ms: NDArray[np.int64]
    """For a suppressed alert the arrival of the card's last alert sent, ms; else 0, shape (n,)."""


class GroupState(GroupArrays):
    """Cards of one key group, and the operations on them."""

    def __init__(
        self, arena: Arena, lateness_ms: int = DEFAULT_LATENESS_MS, *, keeps_ids: bool = False
    ) -> None:
        """Open the state that the arena holds.

        Args:
            keeps_ids: whether pieces store id and arrival of every event, so that labels can look events up.
        """
        super().__init__(arena)
        self.lateness_ms = lateness_ms
        self.keeps_ids = keeps_ids
        self._scratch = feature_kernel.scratch()
        self._walks = 1

    def change_profiles(self, changes: NDArray[np.void], numbers: NDArray[np.int32]) -> tuple[int, int]:
        """Fold profile changes into the cards' version histories, in offset order.

        Args:
            changes: records of PROFILE, shape (n,).
            numbers: card number of each (`card_numbers`), shape (n,).

        Returns:
            How many changes came after a transaction that should have seen them; how many were ignored,
            because the card has a newer version.
        """
        self.reserve("profiles", int(self.counters[PROFILES]), changes.size)
        late, ignored = apply_changes(
            self.arena.arrays["cards"], self.profiles, self.counters, changes, numbers
        )
        return int(late), int(ignored)

    def apply(
        self, batch: NDArray[np.void], numbers: NDArray[np.int32], more_columns: int = 0
    ) -> BatchFeatures:
        """Accept a batch of transactions and compute the features of each as of its arrival.

        Args:
            batch: records of TRANSACTION in log order, shape (n,).
            numbers: card number of each (`card_numbers`), shape (n,).
            more_columns: number of further columns of `BatchFeatures.features`, which the caller fills.
        """
        n = batch.size
        self._advance(batch)
        features = np.empty((n, feature_kernel.N_FEATURES + more_columns))
        status = np.zeros(n, dtype=np.uint8)
        late = np.zeros(n, dtype=np.bool_)
        version = np.empty(n, dtype=np.int32)
        standing = np.empty(n, dtype=np.uint8)
        done = accepted = 0
        while True:
            arrays = self.arena.arrays
            done = feature_kernel.apply(
                arrays["cards"],
                arrays["events"],
                arrays["profiles"],
                arrays["hots"],
                arrays["buckets"],
                arrays["latest"],
                arrays["counters"],
                batch,
                numbers,
                done,
                accepted,
                self.lateness_ms,
                features,
                status,
                late,
                version,
                standing,
                *self._scratch,
                self._walks,
            )
            accepted = done - int(np.count_nonzero(status[:done] == feature_kernel.DUPLICATE))
            if done == n:
                break
            if self.counters[FREE_HOT] == EMPTY and self.counters[HOT_CARDS] == arrays["hots"].size:
                self.reserve_hot(1)
            self.reserve("events", arrays["events"].size, max(MOST_EVENTS, (n - done) * FIRST_CAPACITY))
        self._walks += n
        return BatchFeatures(
            features[:accepted],
            status == feature_kernel.DUPLICATE,
            status == feature_kernel.CONFLICT,
            status == feature_kernel.RESTARTED,
            late,
            version,
            standing,
        )

    def count_alerts(
        self,
        cards: NDArray[np.int32],
        arrivals: NDArray[np.int64],
        alerted: NDArray[np.bool_],
        restarted: NDArray[np.bool_],
        suppressed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Record the alerts of a batch after `apply`, given which of them a cooldown suppressed.

        Args:
            cards: card number of each transaction in log order, shape (n,).
            arrivals: arrival of each, ms, shape (n,).
            alerted: which became alerts, shape (n,).
            restarted: `BatchFeatures.restarted`, shape (n,).
            suppressed: which alerts a cooldown suppressed, shape (n,); None if it suppressed none.

        Returns:
            suspicious_count of each alert: of the day, shape (alerts,), and in total, shape (alerts,).
        """
        rows = np.flatnonzero(alerted | restarted)
        held = np.zeros(rows.size, dtype=np.bool_) if suppressed is None else suppressed[rows]
        # these terms suppress exactly the alerts of `suppressed`, so that the state also records the right
        # time of each card's last alert sent
        terms = AlertTerms(~held, np.zeros(rows.size, np.int64), np.where(held, FOR_EVER, 0))
        counts = self.weigh_alerts(cards[rows], arrivals[rows], alerted[rows], restarted[rows], terms)
        return counts.day[alerted[rows]], counts.total[alerted[rows]]

    def weigh_alerts(
        self,
        cards: NDArray[np.int32],
        arrivals: NDArray[np.int64],
        alerted: NDArray[np.bool_],
        restarted: NDArray[np.bool_],
        terms: AlertTerms,
    ) -> AlertCounts:
        """Record the alerts among transactions, and find those that a cooldown suppresses.

        Args:
            cards: card number of each transaction in log order, shape (n,).
            arrivals: arrival of each, ms, shape (n,).
            alerted: which became alerts, shape (n,); for the others counts are returned, not recorded.
            restarted: `BatchFeatures.restarted`, shape (n,). Transactions of a batch may be left out, but
                none that became an alert or at which a card restarted.
            terms: escalation and cooldown of each row.
        """
        self.reserve("alert_hours", int(self.counters[ALERTED]), int(np.count_nonzero(alerted)))
        day, total, last_sent_ms = (np.empty(cards.size, dtype=np.int64) for _ in range(3))
        arrays = self.arena.arrays
        count_alerts(
            arrays["cards"], arrays["alert_hours"], self.counters, cards, arrivals, alerted, restarted,
            terms.declined, terms.escalate_after, terms.cooldown_ms, day, total, last_sent_ms,
        )  # fmt: skip
        return AlertCounts(day, total, last_sent_ms)

    def _advance(self, batch: NDArray[np.void]) -> None:
        if batch.size:
            self.reserve("frontiers", 0, int(batch["partition"].max()) + 1)
            # copies: for a batch of one record, numba would see columns of another type and compile again
            partitions, arrivals = batch["partition"].copy(), batch["arrival"].copy()
            eviction.advance(self.arena.arrays["frontiers"], partitions, arrivals)

    def sweep(self, added: int) -> NDArray[np.int32]:
        """Evict some of the cards that are forgotten anyway; the work is bounded.

        Args:
            added: cards added since the last sweep; the sweep looks at two more cards for each.

        Returns:
            Numbers of the evicted cards.
        """
        arrays = self.arena.arrays
        idle = np.empty(eviction.MOST_EVICTED + 2 * added, dtype=np.int32)
        count = eviction.find_idle(
            arrays["cards"], self.profiles, self.counters, arrays["frontiers"], self.lateness_ms,
            eviction.SWEEP + 2 * added, idle,
        )  # fmt: skip
        self.evict(idle[:count])
        return idle[:count]

    def evict(self, numbers: NDArray[np.int32]) -> None:
        """Remove the transaction state of cards; remove a card altogether if it has no profile."""
        arrays = self.arena.arrays
        eviction.evict(
            arrays["index"], arrays["cards"], arrays["events"], arrays["profiles"], arrays["alert_hours"],
            arrays["hots"], self.counters, self.lateness_ms, numbers,
        )  # fmt: skip
