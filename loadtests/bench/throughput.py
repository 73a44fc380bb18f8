"""How fast the job works off a backlog, exactly once, and whether all of it is right."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from loadtests import commands as audit
from loadtests.bench import history
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig, Say
from loadtests.simulator.kafka_feed import KafkaFeed

THROUGHPUT = "throughput"
WARM_UP_RATE = 10_000.0
"""Transactions a second."""


@dataclass(frozen=True)
class Backlog:
    """What is to be worked off."""

    warm_up: int
    """Transactions before the backlog, at `WARM_UP_RATE`: a service that has been running for a while."""
    events: int
    """Transactions of the backlog."""

    @property
    def rate(self) -> float:
        """Transactions per second of event time."""
        return history.rate(self.warm_up + self.events)


def measure(rig: Rig, backlog: Backlog, say: Say, *, verify: bool = True) -> Iterator[Figure]:
    """Let the job run at a low rate, then give it a backlog, all at once.

    Spark's JVM compiles what has run often, and in large batches its code runs seldom: from a cold start its
    compilers take up to half of a core for all of a backlog of this size.

    Raises:
        FraudError: the job ended, or its results are wrong.
    """
    past = history.History(rig.installed, backlog.warm_up + backlog.events)
    rig.start_job()
    rig.catch_up(say)
    started = time.monotonic()

    def warming_up(feed: KafkaFeed) -> None:
        rig.check()
        rate = feed.sent.total() / (time.monotonic() - started)
        say(f"warming up: {feed.sent.total():,} of {backlog.warm_up:,} transactions, {rate:,.0f} a second")

    past.send(backlog.warm_up, per_second=WARM_UP_RATE, meanwhile=warming_up)
    rig.catch_up(say)
    say(f"sending {backlog.events:,} transactions")
    began = time.monotonic()
    past.send(backlog.events, at_once=True)
    yield Figure("simulator into Kafka", backlog.events / (time.monotonic() - began), "events/s", ())
    rig.catch_up(say)
    rig.stop_job()
    yield from _figures(rig.progress(), backlog)
    if verify:
        say("verifying against the oracle")
        yield _verified(rig)


def _figures(batches: list[dict[str, Any]], backlog: Backlog) -> Iterator[Figure]:
    counts = [batch["counts"]["transactions"] + batch["counts"]["duplicates"] for batch in batches]
    done_before = accumulate(counts, initial=0)
    drained = [
        (count, batch)
        for count, done, batch in zip(counts, done_before, batches, strict=False)
        if count and done >= backlog.warm_up
    ]
    # when the first of them began is not known
    measured = [
        (count, (batch["written_at"] - before["written_at"]) / 1000)
        for (_, before), (count, batch) in pairwise(drained)
    ]
    if not measured:
        raise BenchError("the backlog fits into one batch; give more --events")
    events, seconds = (sum(column) for column in zip(*measured, strict=True))
    rates = tuple(round(count / took) for count, took in measured)
    size = statistics.median(count for count, _ in measured)
    yield Figure(
        THROUGHPUT, events / seconds, "events/s", rates,
        f"{events:,} events in {len(measured)} batches, the median one of {size:,.0f}",
    )  # fmt: skip
    yield Figure("a batch", 1000 * statistics.median(took for _, took in measured), "ms", ())
    for name in drained[0][1]["phases_ms"]:
        found = tuple(batch["phases_ms"][name] for _, batch in drained[1:])
        yield Figure(f"phase {name}", statistics.median(found), "ms", found)


def _verified(rig: Rig) -> Figure:
    verdict = audit.run(rig.installed.settings)
    found = verdict.report()
    wrong = found["missing"] + found["duplicated"] + found["unexpected"] + len(verdict.problems)
    if not verdict.is_clean:
        raise BenchError(f"the alerts are not the oracle's: {found}")
    detail = f"of {found['events']:,} events and {found['alerts']:,} alerts"
    return Figure("missing + duplicated + unexpected", wrong, "", (), detail)
