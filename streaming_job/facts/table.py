"""The table of merchant facts of all key groups, looked up as of an arrival.

A lookup as of a time needs all facts that take effect up to it, and ignores later ones. So facts are sorted
only when a lookup could need one that is not sorted yet.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from feature_store.merchants.catalogue import MARGIN_MS, MONTH_H, NEVER
from feature_store.merchants.facts import HOUR_COUNT, REPORT, Facts, fold, spans
from feature_store.merchants.offline import features_as_of
from feature_store.state.journal import PieceStore
from streaming_job.facts.record import FactBatch
from streaming_job.facts.tiers import Tiers

NEVER_PROMISED = -NEVER
PROMISES = "promises"
"""Name in `Meta.extra`."""
KEPT_LONGER_H = 8 * 24
"""Hours for which facts are retained beyond the longest lookback from the horizon: arrivals may go back."""
FEW = 10_000
"""Number of old counts up to which none are dropped."""


@dataclass(frozen=True)
class MerchantRules:
    """The settings that merchant facts and features depend on; the same for every start of a job."""

    job_id: str
    delay_ms: int
    """Label delay: a transaction without a report for that long counts as genuine."""

    @property
    def ripe_after_ms(self) -> int:
        """Time from the end of an hour until its counts take effect."""
        return self.delay_ms + MARGIN_MS


class FactTable:
    """The facts of all key groups that have been read."""

    def __init__(self, rules: MerchantRules, groups: int, store: PieceStore, extra: dict[str, Any]) -> None:
        """Continue from persisted state.

        Args:
            rules: rules of the job.
            groups: number of key groups.
            store: the persisted pieces.
            extra: `Meta.extra`, persisted as JSON.

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
        """Time at which the first fact takes effect that `_facts` does not contain."""
        self._facts: Facts = self._in_order()
        self.features(np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64))  # loads the kernel

    def fold(self, batch: FactBatch) -> None:
        """Fold facts, in the order of the log."""
        for group, until in batch.promises.items():
            self._promises[str(group)] = max(until, self.promise(group))
        if batch.counts.size:
            self._counts.append(batch.counts)
            self._unsaved["mc"].append(batch.counts)
            self._note_effect((int(batch.counts["hour"].min()) + 1) * HOUR_MS + self._rules.ripe_after_ms)
        if batch.reports.size:
            self._reports.append(batch.reports)
            self._unsaved["mr"].append(batch.reports)
            self._note_effect(int(batch.reports["effective_at"].min()))

    def _note_effect(self, effective_at: int) -> None:
        self._stale_from = min(self._stale_from, effective_at)

    def promise(self, group: int) -> int:
        """Return the greatest promise of a group; NEVER_PROMISED without one."""
        return self._promises.get(str(group), NEVER_PROMISED)

    @property
    def horizon(self) -> int:
        """Time before which all facts that take effect are in the table, ms."""
        return min(self.promise(group) for group in range(self._groups))

    @property
    def greatest_promise(self) -> int:
        """Greatest promise of any group, ms."""
        return max(self.promise(group) for group in range(self._groups))

    def features(self, merchants: NDArray[np.uint64], arrivals: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return merchant label features of n transactions, as of their arrivals, all before the horizon.

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
        """Write the changes since the last call."""
        for name, parts in (("mc", self._counts), ("mr", self._reports)):
            if self._has_dropped:
                self._tiers[name].replace(store, np.concatenate(parts))
            elif self._unsaved[name]:
                self._tiers[name].add(store, np.concatenate(self._unsaved[name]))
            self._unsaved[name] = []
        self._has_dropped = False
