"""How long after a transaction's Kafka timestamp a read_committed consumer holds its alert."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deploy.local import processes
from loadtests.bench.alert_reader import AlertReader
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig, Say

PERCENTILES = (50, 90, 99, 99.9)
BATCH_PHASES = ("run", "tables", "features", "score", "decide", "persist", "measure")
TIMEOUT_S = 10.0


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
    begin, end = _feed(rig, live, say)
    rig.catch_up(say)
    reader.stop()
    rig.stop_job()
    yield from _figures(rig, reader, live, begin, end)


def _feed(rig: Rig, live: Live, say: Say) -> tuple[float, float]:
    """Run the simulator as a process; returns the measured time, ms since 1970-01-01 UTC."""
    directory = rig.plan.data_dir
    log = directory / "logs" / "simulator.log"
    mark = f"card-fraud.bench-feed={directory}"
    total = live.warm_up_s + live.for_s
    command = [
        sys.executable, "-X", mark, "-m", "deploy.cli", "simulate",
        "--bootstrap-servers", rig.installed.stack.bootstrap_servers,
        "--rate", str(live.rate), "--cards", str(rig.plan.cards), "--seed", str(rig.plan.seed),
        "--for", f"{total}s",
    ]  # fmt: skip
    if rig.plan.profiles:
        command += ["--postgres-dsn", rig.installed.stack.postgres_dsn]
    feed = processes.spawn(command, marker=mark, log=log, cwd=Path.cwd(), env=os.environ)
    try:
        processes.wait_until(
            lambda: bool(rig.installed.lag()),
            server=feed,
            name="the simulator",
            log=log,
            deadline_s=TIMEOUT_S * 6,
        )
        begin = time.time() + live.warm_up_s
        while (left := begin + live.for_s - time.time()) > 0:
            rig.check()
            what = "warming up" if left > live.for_s else "measuring"
            say(f"{what} at {live.rate:,.0f} transactions a second, {left:.0f} s left")
            time.sleep(min(1.0, left))
        # it stops by itself: its own time began before ours
        if processes.running(feed) is not None:
            processes.stop(feed, patience_s=TIMEOUT_S)
    finally:
        processes.stop(feed)
    return begin * 1000, (begin + live.for_s) * 1000


def _figures(rig: Rig, reader: AlertReader, live: Live, begin: float, end: float) -> Iterator[Figure]:
    arrivals = np.array(reader.arrivals, dtype=np.float64)
    chosen = (arrivals >= begin) & (arrivals < end)
    if not chosen.any():
        raise BenchError("no alert came in the measured time; give a higher --rate or a longer --for")
    latencies = (np.array(reader.received) - arrivals)[chosen]
    raw = tuple(round(float(ms), 1) for ms in np.percentile(latencies, np.arange(0, 101)))
    for percentile in PERCENTILES:
        yield Figure(
            f"p{percentile:g}", float(np.percentile(latencies, percentile)), "ms",
            raw if percentile == PERCENTILES[0] else (),
            f"arrival of the transaction to receipt of its alert; {chosen.sum():,} alerts",
        )  # fmt: skip
    batches = [
        batch
        for batch in rig.progress()
        if begin <= batch["written_at"] < end and batch["counts"]["transactions"]
    ]
    events = sum(batch["counts"]["transactions"] for batch in batches)
    yield Figure("rate", events / live.for_s, "events/s", (), f"{live.rate:,.0f} asked for")
    yield Figure("batches", len(batches) / live.for_s, "1/s", ())
    for name in BATCH_PHASES:
        found = [batch["phases_ms"][name] for batch in batches if name in batch["phases_ms"]]
        if found:
            yield Figure(f"phase {name}", float(np.median(found)), "ms", (), "median of the batches")
