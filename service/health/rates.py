"""Throughput and latency of the last minute, from the growth of the job's totals."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from streaming_job.progress.totals import Totals

OVER_S = 60.0
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Rates:
    """Throughput and latency of the last minute."""

    per_s: float
    """Transactions decided per second."""
    latency_s: dict[int, float]
    """Percentile -> seconds from arrival to commit; empty without transactions."""


class RecentTotals:
    """Samples of the job's totals, taken during the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, dict[float, int]]] = deque()
        """(time in s, transactions, cumulative counts of latencies by upper bound in ms)."""

    def add(self, now_s: float, totals: Totals) -> None:
        """Add the current totals."""
        transactions = totals.counts["transactions"]
        if self._seen and transactions < self._seen[-1][1]:
            self._seen.clear()  # the totals were restarted
        self._seen.append((now_s, transactions, dict(totals.histograms["latency_ms"].cumulative())))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= OVER_S:
            self._seen.popleft()

    @property
    def rates(self) -> Rates | None:
        """Rates of the last minute, or of the shorter time sampled so far; None before the second sample."""
        if len(self._seen) < 2:
            return None
        (first_s, before, old), (last_s, after, new) = self._seen[0], self._seen[-1]
        if last_s <= first_s:
            return None
        grown = [(bound, count - old.get(bound, 0)) for bound, count in sorted(new.items())]
        latencies = {share: quantile(grown, share / 100) for share in PERCENTILES}
        latency_s = {share: ms / 1e3 for share, ms in latencies.items() if ms is not None}
        return Rates((after - before) / (last_s - first_s), latency_s)


def quantile(cumulative: Sequence[tuple[float, int]], share: float) -> float | None:
    """Estimate a quantile from a histogram, linear within a bucket, as Prometheus' histogram_quantile does.

    Args:
        cumulative: (upper bound, values at or below it), ascending; the last bound is infinity.
        share: 0..1.

    Returns:
        The estimate; the greatest finite bound if the quantile lies above it; None without values.
    """
    if not cumulative or cumulative[-1][1] <= 0:
        return None
    rank = share * cumulative[-1][1]
    below, lower = 0, 0.0
    for bound, count in cumulative:
        if count >= rank and count > below:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound if bound != float("inf") else lower
    return lower
