"""How long after a transaction's Kafka timestamp a read_committed consumer holds its alert."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from loadtests.bench.alert_reader import AlertReader
from loadtests.bench.job_usage import JobUsage
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig, Say

PERCENTILES = (50, 90, 99, 99.9)
PHASES = ("take", "tables", "decode", "features", "score", "decide", "transaction", "persist")
SAMPLE_S = 5.0
"""Between two looks at the job's processes."""


@dataclass(frozen=True)
class Live:
    """The load to measure under."""

    rate: float
    """Transactions per second."""
    warm_up_s: float
    """Before what is measured: compilers, caches and pools settle meanwhile."""
    for_s: float


def measure(rig: Rig, live: Live, say: Say) -> Iterator[Figure]:
    """Feed at a rate for a while, and read the alerts meanwhile.

    Raises:
        FraudError: the job ended, or the machine cannot send at this rate.
    """
    rig.start_job()
    rig.catch_up(say)
    reader = AlertReader(rig.installed.stack.bootstrap_servers, rig.installed.topics.fraud_alerts)
    reader.start()
    usage = JobUsage(rig.job.process.pid)
    begin, end = _feed(rig, live, usage, say)
    rig.catch_up(say)
    reader.stop()
    rig.stop_job()
    yield from _figures(rig, reader, live, begin, end)
    yield Figure("job cpu", usage.cores(), "cores", (), "driver, JVM and workers, in the measured time")
    yield Figure(
        "memory", usage.peak_memory / 2**20, "MiB", (),
        "of the same, shared pages counted once; before or after the measured time, whichever is more",
    )  # fmt: skip


def _feed(rig: Rig, live: Live, usage: JobUsage, say: Say) -> tuple[float, float]:
    """Feed and look; returns the measured time, ms since 1970-01-01 UTC."""
    with rig.feeding(live.rate, live.warm_up_s + live.for_s):
        begin = time.time() + live.warm_up_s
        end = begin + live.for_s
        load = f"at {live.rate:,.0f} transactions a second"
        _wait(rig, begin - 1.0, lambda left: say(f"warming up {load}, {left + live.for_s:.0f} s left"))
        usage.measure_memory()
        _wait(rig, begin, lambda left: None)
        usage.sample()
        sampled = begin

        def measuring(left: float) -> None:
            nonlocal sampled
            say(f"measuring {load}, {left:.0f} s left")
            if time.time() > sampled + SAMPLE_S:
                sampled = time.time()
                usage.sample()

        _wait(rig, end, measuring)
        usage.sample()
        usage.measure_memory()
    return begin * 1000, end * 1000


def _wait(rig: Rig, end: float, doing: Callable[[float], None]) -> None:
    """Wait until a time, seconds since 1970-01-01 UTC; tell how many are left, and see that the job runs."""
    while (left := end - time.time()) > 0:
        rig.check()
        doing(left)
        time.sleep(min(1.0, left))


def _figures(rig: Rig, reader: AlertReader, live: Live, begin: float, end: float) -> Iterator[Figure]:
    latencies = reader.latencies(begin, end)
    if not latencies.size:
        raise BenchError("no alert came in the measured time; give a higher --rate or a longer --for")
    raw = tuple(round(float(ms), 1) for ms in np.percentile(latencies, np.arange(0, 101)))
    for percentile in PERCENTILES:
        yield Figure(
            f"p{percentile:g}", float(np.percentile(latencies, percentile)), "ms",
            raw if percentile == PERCENTILES[0] else (),
            f"arrival of the transaction to receipt of its alert; {latencies.size:,} alerts",
        )  # fmt: skip
    commits = [commit for commit in rig.commits() if begin <= commit.written_at < end and commit.decided]
    events = sum(commit.decided for commit in commits)
    yield Figure("rate", events / live.for_s, "events/s", (), f"{live.rate:,.0f} asked for")
    yield Figure("commits", len(commits) / live.for_s, "1/s", (), "of all key groups")
    for name in PHASES:
        found = [commit.phases_ms[name] for commit in commits if name in commit.phases_ms]
        if found:
            yield Figure(f"phase {name}", float(np.median(found)), "ms", (), "median of the commits")
