"""The table of merchant facts of all key groups, looked up as of an arrival.

A lookup as of a time needs all facts that take effect up to that time, and ignores later ones. So counts may
be added as soon as they are read. Reports have to be sorted, which waits until a lookup could need an
unsorted one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import HOUR_MS
from feature_store.layout import joined, rows_of
from feature_store.merchants.catalogue import MARGIN_MS, MONTH_H, NEVER
from feature_store.merchants.facts import REPORT, Facts, spans, with_frauds
from feature_store.merchants.hours import HOUR_COUNT, GrowingHours
from feature_store.merchants.offline import features_as_of
from feature_store.state.journal import PieceSink, PieceStore
from streaming_job.facts.record import FactBatch
from streaming_job.facts.tiers import Tiers

NEVER_PROMISED = -NEVER
PROMISES = "promises"
"""Name in `Meta.extra`."""
COUNTED, REPORTED = "mc", "mr"
"""Prefixes of the pieces."""
KEPT_LONGER_H = 8 * 24
"""Hours for which facts are kept beyond the longest lookback from the horizon: if a broker's clock is set
back, new transactions arrive long before the horizon."""


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
    """The facts that have been read, of all key groups."""

    def __init__(self, rules: MerchantRules, groups: int, store: PieceStore, extra: dict[str, Any]) -> None:
        """Continue from persisted state.

        Args:
            extra: `Meta.extra`, persisted as JSON.
        """
        self._rules, self._groups = rules, groups
        self._promises: dict[str, int] = extra.setdefault(PROMISES, {})
        self._counted = Tiers(COUNTED, HOUR_COUNT, extra, "hour")
        self._reported = Tiers(REPORTED, REPORT, extra, "arrival")
        self._hours = GrowingHours()
        for part in self._counted.parts(store):
            self._hours.add(part, self._oldest_hour)
        self._reports = [self._reported.load(store)]
        self._unsaved_counts: list[NDArray[np.void]] = []
        self._unsaved_reports: list[NDArray[np.void]] = []
        self._stale_from = NEVER
        """Time at which the first report that `_facts` lacks takes effect."""
        self._facts: Facts
        self.sort_reports()
        self.features(np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64))  # loads the kernel

    def fold(self, batch: FactBatch) -> None:
        """Fold facts, in the order of the log."""
        for group, until in batch.promises.items():
            self._promises[str(group)] = max(until, self.promise(group))
        if batch.counts.size:
            # counts may be added before they take effect: lookups leave out hours that are not ripe
            self._hours.add(batch.counts, self._oldest_hour)
            self._unsaved_counts.append(batch.counts)
        if batch.reports.size:
            self._reports.append(batch.reports)
            self._unsaved_reports.append(batch.reports)
            self._stale_from = min(self._stale_from, int(batch.reports["effective_at"].min()))

    def promise(self, group: int) -> int:
        """Return the greatest promise of a group; NEVER_PROMISED without one."""
        return self._promises.get(str(group), NEVER_PROMISED)

    @property
    def horizon(self) -> int:
        """Time, ms: the table contains all facts that take effect before it."""
        return min(self.promise(group) for group in range(self._groups))

    @property
    def greatest_promise(self) -> int:
        """Greatest promise of any group, ms."""
        return max(self.promise(group) for group in range(self._groups))

    def features(self, merchants: NDArray[np.uint64], arrivals: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return merchant label features of n transactions, as of their arrivals.

        Args:
            merchants: hashes, shape (n,).
            arrivals: ms, all before the horizon, shape (n,).

        Returns:
            Shape (n, number of merchant label features); NaN where unknown.
        """
        if arrivals.size and self._stale_from <= arrivals.max():
            self.sort_reports()
        return features_as_of(self._facts, merchants, arrivals, self._rules.delay_ms)

    @property
    def _oldest_hour(self) -> int:
        """First hour that a lookup can reach."""
        look_back = self._rules.ripe_after_ms // HOUR_MS + 1 + MONTH_H + KEPT_LONGER_H
        return self.horizon // HOUR_MS - look_back

    def sort_reports(self) -> None:
        """Sort all reports, including those folded since the last call; `features` calls this when needed."""
        reports = joined(self._reports)
        reports = rows_of(reports, reports["arrival"] // HOUR_MS >= self._oldest_hour)
        self._reports, self._stale_from = [reports], NEVER
        self._facts = with_frauds(self._hours, spans(reports))

    @property
    def nbytes(self) -> int:
        """Size of the facts in memory, bytes."""
        facts = self._facts
        reports = sum(part.nbytes for part in self._reports)
        return self._hours.nbytes + facts.frauds.nbytes + facts.merchants.nbytes + reports

    def persist(self, store: PieceSink) -> None:
        """Write the changes since the last call."""
        for tiers, unsaved in (
            (self._counted, self._unsaved_counts),
            (self._reported, self._unsaved_reports),
        ):
            if unsaved:
                tiers.add(store, joined(unsaved))
                unsaved.clear()
        oldest = self._oldest_hour
        self._counted.drop_before(store, oldest)
        self._reported.drop_before(store, oldest * HOUR_MS)
