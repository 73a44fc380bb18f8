"""Latency benchmark: from a transaction's Kafka timestamp to the receipt of its alert (read_committed)."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from hdrh.histogram import HdrHistogram

from loadtests.bench.job_usage import JobUsage
from loadtests.bench.measure import Circumstance, Figure, Result
from loadtests.bench.rig import BenchError, Rig
from loadtests.rig import histograms
from loadtests.rig.report import Say
from loadtests.rig.watch import ReceivedAlert, arrival_latencies_us

PERCENTILES = (50, 90, 99, 99.9)
PHASES = (
    "take", "tables", "decode", "features", "score", "decide", "measure", "transaction", "persist",
    "open", "wait",
)  # fmt: skip
SAMPLE_S = 5.0
"""Time between two samples of the job's processes, seconds."""


@dataclass(frozen=True)
class Live:
    """The load to measure under."""

    rate: float
    """Transactions per second."""
    warm_up_s: float
    """Time before the measurement, in which compilers, caches and pools settle."""
    for_s: float


def measure(rig: Rig, live: Live, say: Say) -> Iterator[Result]:
    """Feed transactions at a rate, and measure the time until their alerts are received."""
    rig.start_warm_job(say)
    watch = rig.installed.watch_alerts()
    usage = JobUsage(rig.job.pid)
    begin, end = _feed(rig, live, usage, say)
    rig.catch_up(say)
    alerts = watch.finish()
    rig.stop_job()
    yield from _figures(rig, alerts, live, begin, end)
    yield Figure("job cpu", usage.cores(), "cores", "driver, JVM and workers, in the measured time")
    yield Figure(
        "memory", usage.peak_memory / 2**20, "MiB",
        "driver, JVM and workers, shared pages counted once; the larger of two values, at the beginning and "
        "at the end of the measured time",
    )  # fmt: skip


def _feed(rig: Rig, live: Live, usage: JobUsage, say: Say) -> tuple[float, float]:
    """Feed transactions and sample the job; returns the measured interval, ms since 1970-01-01 UTC."""
    with rig.feeding(live.rate, live.warm_up_s + live.for_s):
        begin = time.time() + live.warm_up_s
        end = begin + live.for_s
        load = f"at {live.rate:,.0f} transactions a second"
        wait(
            rig,
            begin - 1.0,
            lambda left: say(f"warming up {load}, {left + live.for_s:.0f} s left, including the measurement"),
        )
        usage.measure_memory()
        wait(rig, begin, lambda left: None)
        usage.sample()
        sampled = begin

        def measuring(left: float) -> None:
            nonlocal sampled
            say(f"measuring {load}, {left:.0f} s left")
            if time.time() > sampled + SAMPLE_S:
                sampled = time.time()
                usage.sample()

        wait(rig, end, measuring)
        usage.sample()
        usage.measure_memory()
    return begin * 1000, end * 1000


def wait(rig: Rig, end: float, doing: Callable[[float], None]) -> None:
    """Wait until a time (s since 1970-01-01 UTC) while the job runs; `doing` gets the remaining seconds."""
    while (remaining := end - time.time()) > 0:
        rig.check()
        doing(remaining)
        time.sleep(min(1.0, remaining))


def latency_of(alerts: Iterable[ReceivedAlert], begin_ms: float, end_ms: float) -> HdrHistogram:
    """Return the latencies of transactions that arrived in an interval.

    Raises:
        BenchError: no alert was received for it.
    """
    latency = histograms.of(arrival_latencies_us(alerts, begin_ms, end_ms))
    if not latency.get_total_count():
        raise BenchError("no alert was received in the measured time; give a higher --rate or a longer --for")
    return latency


def percentiles(latency: HdrHistogram, of: str = "") -> Iterator[Figure]:
    """Yield the percentiles; `of` ends their names."""
    count = latency.get_total_count()
    for percentile in PERCENTILES:
        yield Figure(
            f"p{percentile:g} {of}".strip(), histograms.percentile_ms(latency, percentile) or 0.0, "ms",
            f"arrival of the transaction to receipt of its alert; {count:,} alerts",
        )  # fmt: skip


def _figures(rig: Rig, alerts: list[ReceivedAlert], live: Live, begin: float, end: float) -> Iterator[Result]:
    latency = latency_of(alerts, begin, end)
    yield Circumstance("latency_curve", histograms.curve(latency))
    yield from percentiles(latency)
    commits = [commit for commit in rig.commits() if begin <= commit.written_at < end and commit.decided]
    events = sum(commit.decided for commit in commits)
    yield Figure("rate", events / live.for_s, "events/s", f"{live.rate:,.0f} requested")
    yield Figure("commits", len(commits) / live.for_s, "1/s", "of all key groups")
    for name in PHASES:
        times = [commit.phases_ms[name] for commit in commits if name in commit.phases_ms]
        if times:
            yield Figure(f"phase {name}", float(np.median(times)), "ms", "median of the commits")
