"""Throughput benchmark: how fast the job works off a backlog, exactly once, with an audit of the result."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from loadtests import commands as audit
from loadtests.bench import history
from loadtests.bench.latency import PHASES
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, MeasuredCommit, Rig
from loadtests.rig.report import Say

THROUGHPUT = "throughput"
WARM_UP_RATE = 10_000.0
"""Transactions per second."""


@dataclass(frozen=True)
class Backlog:
    """The transactions to work off."""

    warm_up: int
    """Transactions before the backlog, at `WARM_UP_RATE`, so that the job has been running for a while."""
    events: int
    """Transactions of the backlog."""
    span_s: float = history.SPAN_S
    """Span of the event times of all transactions, seconds."""

    @property
    def rate(self) -> float:
        """Transactions per second of event time."""
        return history.rate(self.warm_up + self.events, self.span_s)


def measure(rig: Rig, backlog: Backlog, say: Say, *, verify: bool = True) -> Iterator[Figure]:
    """Run the job at a low rate, then give it a backlog, all at once.

    Spark's JVM compiles code once it has run often, and most of Spark's code runs only once per epoch.
    Without the time at a low rate, the JVM would compile, and so take CPU time, during the backlog.
    """
    past = history.History(rig.installed, backlog.warm_up + backlog.events, backlog.span_s)
    rig.start_job()
    rig.catch_up(say)
    started = time.monotonic()

    def warming_up(sent: int) -> None:
        rig.check()
        rate = sent / (time.monotonic() - started)
        say(f"warming up: {sent:,} of {backlog.warm_up:,} transactions, {rate:,.0f} a second")

    past.send(backlog.warm_up, per_second=WARM_UP_RATE, meanwhile=warming_up)
    rig.catch_up(say)
    say(f"sending {backlog.events:,} transactions")
    began = time.monotonic()
    past.send(backlog.events, at_once=True)
    yield Figure("simulator into Kafka", backlog.events / (time.monotonic() - began), "events/s")
    rig.catch_up(say)
    rig.stop_job()
    yield from figures(rig.commits(), backlog)
    if verify:
        say("verifying against the oracle")
        yield _verified(rig)


def figures(commits: list[MeasuredCommit], backlog: Backlog) -> Iterator[Figure]:
    """Yield the throughput of a job that works off a backlog, from its commits."""
    done_before = accumulate((commit.decided + commit.repeated for commit in commits), initial=0)
    drain = [
        commit
        for commit, done in zip(commits, done_before, strict=False)
        if commit.decided + commit.repeated and done >= backlog.warm_up
    ]
    # each key group's first commit of the backlog is left out, because its beginning is unknown
    firsts = {commit.key_group: commit for commit in reversed(drain)}
    measured = [commit for commit in drain if commit is not firsts[commit.key_group]]
    if not measured:
        raise BenchError("each key group needs only one commit for the backlog; give more --events")
    events = sum(commit.decided + commit.repeated for commit in measured)
    begin = min(commit.written_at for commit in drain)
    seconds = (max(commit.written_at for commit in drain) - begin) / 1000
    by_second: Counter[int] = Counter()
    for commit in measured:
        by_second[(commit.written_at - begin) // 1000] += commit.decided + commit.repeated
    yield Figure(
        THROUGHPUT, events / seconds, "events/s",
        f"{events:,} events in {len(measured):,} commits; rounds: events of each second",
        rounds=tuple(by_second[at] for at in range(int(seconds))),
    )  # fmt: skip
    yield Figure("events of a commit", events / len(measured), "", "the mean")
    for name in PHASES:
        spent = sum(commit.phases_ms.get(name, 0.0) for commit in measured)
        if spent:
            yield Figure(f"phase {name}", 1000 * spent / events, "us/event", "one key group's time")


def _verified(rig: Rig) -> Figure:
    verdict = audit.run(rig.installed.settings)
    counts = verdict.report()
    wrong = counts["missing"] + counts["duplicated"] + counts["unexpected"] + len(verdict.problems)
    if not verdict.is_clean:
        raise BenchError(f"the audit found differences: {counts}")
    detail = f"of {counts['events']:,} events and {counts['alerts']:,} alerts"
    return Figure("missing + duplicated + unexpected", wrong, "", detail)
