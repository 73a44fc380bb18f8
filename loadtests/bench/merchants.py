"""Benchmark of the table of merchant facts: memory, state, and time with very many merchants."""

import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS, HOUR_MS
from feature_store.layout import MERCHANT_MASK
from feature_store.merchants.catalogue import takes_effect
from feature_store.merchants.facts import REPORT
from feature_store.merchants.hours import HOUR_COUNT
from feature_store.state.journal import MemoryPieces
from loadtests.bench.measure import Figure, per_item
from streaming_job.facts.clock import promise_of
from streaming_job.facts.record import FactBatch
from streaming_job.facts.table import FactTable, MerchantRules

BEGIN_HOUR = 486_000
DELAY_DAYS, KEPT_DAYS = 7, 46
"""Label delay, and the number of days for which a table with that delay keeps facts."""
SEEN_DAYS = 2
"""Days after KEPT_DAYS, in which times are measured."""
MINI_BATCH, BLOCK = 16, 1_024
"""Transactions per lookup: at moderate rates, and from a backlog."""


@dataclass(frozen=True)
class MerchantTraffic:
    """A bank's traffic as merchant facts: transactions spread evenly over merchants and hours."""

    merchants: int
    per_day: float
    """Transactions of a merchant per day."""
    labels_per_day: int
    """Fraud reports per day, on transactions of the days before."""

    def hour(self, hour: int, rng: np.random.Generator) -> FactBatch:
        """Return the facts that are written when an hour is over."""
        counts = np.empty(rng.poisson(self.merchants * self.per_day / 24), dtype=HOUR_COUNT)
        counts["merchant"] = np.sort(_hashes(rng.integers(0, self.merchants, counts.size)))
        counts["hour"], counts["count"] = hour, 1
        reports = np.empty(rng.poisson(self.labels_per_day / 24), dtype=REPORT)
        reports["merchant"] = _hashes(rng.integers(0, self.merchants, reports.size))
        reports["transaction"] = rng.integers(0, 1 << 40, reports.size)
        reports["arrival"] = (hour - rng.integers(24, 5 * 24, reports.size)) * HOUR_MS
        reports["effective_at"] = takes_effect(np.full(reports.size, hour * HOUR_MS))
        reports["fraud"], reports["spike"] = True, rng.random(reports.size) < 0.5
        return FactBatch(counts, reports, {0: promise_of(hour + 1)})


def measure(traffic: MerchantTraffic, rounds: int, say: Callable[[str], None]) -> Iterator[Figure]:
    """Fill a key group's table, then open it again; measure additions, writes, sorting, lookups, opening."""
    store, extra, rules = MemoryPieces(), dict[str, Any](), MerchantRules("bench", DELAY_DAYS * DAY_MS)
    yield from _of_a_running_table(traffic, rounds, FactTable(rules, 1, store, extra), store, say)
    written = sum(map(len, store.values())) / 1e6
    yield Figure("state on disk", written, "MB", f"of each key group, {len(store):,} pieces")
    opened = _ms(lambda: FactTable(rules, 1, store, extra)) / 1e3
    yield Figure(
        "table opened from the state", opened, "s", "at a start, by each key group", rounds=(opened,)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    yield Figure("peak memory of this process", peak, "MB", "the state is here in memory, too")


def _of_a_running_table(
    traffic: MerchantTraffic, rounds: int, table: FactTable, store: MemoryPieces, say: Callable[[str], None]
) -> Iterator[Figure]:
    rng = np.random.default_rng(1)
    folded, sealed = [], []
    last = BEGIN_HOUR + 24 * (KEPT_DAYS + SEEN_DAYS)
    for hour in range(BEGIN_HOUR, last):
        batch = traffic.hour(hour, rng)
        folded.append(_ms(partial(table.fold, batch)))
        sealed.append(_ms(partial(table.persist, store)))
        if (hour - BEGIN_HOUR) % 24 == 0:
            say(f"day {(hour - BEGIN_HOUR) // 24 + 1} of {KEPT_DAYS + SEEN_DAYS}")
    detail = f"{traffic.merchants:,} merchants, {traffic.per_day:g} transactions a day of each"
    yield _figure("counts of an hour, added", folded[24 * KEPT_DAYS :], detail)
    yield _figure(
        "counts of an hour, written to the state", sealed[24 * KEPT_DAYS :], "once an hour of the log"
    )
    yield per_item(
        "labels, sorted again", "ms", rounds, 1, lambda: table.sort_reports, scale=1e3,
        detail=f"once an hour of the log; {traffic.labels_per_day * KEPT_DAYS:,} labels",
    )  # fmt: skip
    for size in (MINI_BATCH, BLOCK):
        merchants = _hashes(rng.integers(0, traffic.merchants, size))
        arrivals = np.full(size, promise_of(last) - 1)
        lookup = partial(table.features, merchants, arrivals)
        yield per_item(
            f"lookup, {size:,} transactions at once", "us/event", rounds, size, partial(_same, lookup),
            scale=1e6, detail="one thread",
        )  # fmt: skip
    yield Figure("table in memory", table.nbytes / 1e6, "MB", "of each key group")


def _same(call: Callable[[], object]) -> Callable[[], object]:
    return call


def _hashes(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Spread numbers over the bits of a merchant's hash, one to one."""
    return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) & np.uint64(MERCHANT_MASK)


def _ms(call: Callable[[], object]) -> float:
    begun = time.thread_time()
    call()
    return 1e3 * (time.thread_time() - begun)


def _figure(name: str, values: list[float], detail: str) -> Figure:
    detail = f"{detail}; at most {max(values):.1f}"
    return Figure(name, statistics.median(values), "ms", detail, rounds=tuple(values))
