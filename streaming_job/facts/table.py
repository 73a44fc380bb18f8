"""Merchant facts folded as a table: what every key group knows of all merchants, looked up as of an arrival.

A lookup as of a time needs every fact that takes effect up to it, and does not mind later ones. So facts are
put into order only when one that is not yet in order could be seen.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from feature_store.journal import PieceStore
from feature_store.merchants.catalogue import MARGIN_MS, MONTH_H, NEVER
from feature_store.merchants.facts import HOUR_COUNT, REPORT, Facts, fold, spans
from feature_store.merchants.offline import features_as_of
from streaming_job.facts.record import Told
from streaming_job.facts.tiers import Tiers

NEVER_PROMISED = -NEVER
PROMISES = "promises"
"""Name in what is kept beside the state."""
KEPT_LONGER_H = 8 * 24
"""Facts are kept for so much longer than the longest look back from the horizon: arrivals may go back."""
FEW = 10_000
"""Facts that are not worth dropping."""


@dataclass(frozen=True)
class MerchantRules:
    """What merchant facts and features depend on, beside the log: the same for every start of a job."""

    job_id: str
    delay_ms: int
    """Label delay: a transaction that nobody has reported for so long counts as genuine."""

    @property
    def ripe_after_ms(self) -> int:
        """After the end of an hour; its counts take effect then."""
        return self.delay_ms + MARGIN_MS


class FactTable:
    """All facts of all key groups, as far as they have been read."""

    def __init__(self, rules: MerchantRules, groups: int, store: PieceStore, extra: dict[str, Any]) -> None:
        """Go on from persisted state.

        Args:
            rules: of the job.
            groups: number of key groups.
            store: the persisted pieces.
            extra: what is kept beside them, as JSON.

        Raises:
            StateDamagedError: a piece is missing or damaged.
        """
        self._rules, self._groups = rules, groups
        self._promises: dict[str, int] = extra.setdefault(PROMISES, {})
        self._tiers = {"mc": Tiers("mc", HOUR_COUNT, extra), "mr": Tiers("mr", REPORT, extra)}
        self._counts = [self._tiers["mc"].load(store)]
        self._reports = [self._tiers["mr"].load(store)]
        self._unsaved: dict[str, list[NDArray[np.void]]] = {"mc": [], "mr": []}
        self._has_dropped = False
        self._stale_from = NEVER
        """When the first fact takes effect that `_facts` lacks."""
        self._facts: Facts = self._in_order()
        self.features(np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64))  # loads the kernel

    def fold(self, told: Told) -> None:
        """Take in facts, in the order of the log."""
        for group, until in told.promises.items():
            self._promises[str(group)] = max(until, self.promise(group))
        if told.counts.size:
            self._counts.append(told.counts)
            self._unsaved["mc"].append(told.counts)
            self._see((int(told.counts["hour"].min()) + 1) * HOUR_MS + self._rules.ripe_after_ms)
        if told.reports.size:
            self._reports.append(told.reports)
            self._unsaved["mr"].append(told.reports)
            self._see(int(told.reports["effective_at"].min()))

    def _see(self, effective_at: int) -> None:
        self._stale_from = min(self._stale_from, effective_at)

    def promise(self, group: int) -> int:
        """The greatest promise of a group; NEVER_PROMISED without one."""
        return self._promises.get(str(group), NEVER_PROMISED)

    @property
    def horizon(self) -> int:
        """Every fact that takes effect before it is in the table, ms."""
        return min(self.promise(group) for group in range(self._groups))

    @property
    def greatest_promise(self) -> int:
        """Of any group, ms."""
        return max(self.promise(group) for group in range(self._groups))

    def features(self, merchants: NDArray[np.uint64], arrivals: NDArray[np.int64]) -> NDArray[np.float64]:
        """Merchant label features of n transactions, each as of its arrival, which is before the horizon.

        Args:
            merchants: hashes, shape (n,).
            arrivals: ms, shape (n,).

        Returns:
            Shape (n, len(MERCHANT_FEATURES)); NaN where unknown.
        """
        if arrivals.size and self._stale_from <= arrivals.max():
            self._facts = self._in_order()
        return features_as_of(self._facts, merchants, arrivals, self._rules.delay_ms)

    def _in_order(self) -> Facts:
        counts, reports = np.concatenate(self._counts), np.concatenate(self._reports)
        look_back = self._rules.ripe_after_ms // HOUR_MS + 1 + MONTH_H + KEPT_LONGER_H
        oldest = self.horizon // HOUR_MS - look_back
        old = counts["hour"] < oldest
        if np.count_nonzero(old) > max(FEW, counts.size // 4):
            counts = counts[~old]
            reports = reports[reports["arrival"] // HOUR_MS >= oldest]
            self._has_dropped = True
        self._counts, self._reports, self._stale_from = [counts], [reports], NEVER
        return fold(counts, spans(reports))

    def seal(self, store: PieceStore) -> None:
        """Write what is new since the last time."""
        for name, held in (("mc", self._counts), ("mr", self._reports)):
            if self._has_dropped:
                self._tiers[name].replace(store, np.concatenate(held))
            elif self._unsaved[name]:
                self._tiers[name].add(store, np.concatenate(self._unsaved[name]))
            self._unsaved[name] = []
        self._has_dropped = False
