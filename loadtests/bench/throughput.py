"""How fast the job works off a backlog, exactly once, and whether all of it is right."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loadtests import commands as audit
from loadtests.bench import history
from loadtests.bench.measure import Figure
from loadtests.bench.rig import BenchError, Rig, Say

THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Backlog:
    """What is to be worked off."""

    warm_up: int
    """Transactions before the measured ones: compilers, caches and pools settle on them."""
    events: int
    """Transactions that are measured."""

    @property
    def rate(self) -> float:
        """Transactions per second of event time."""
        return history.rate(self.warm_up + self.events)


def measure(rig: Rig, backlog: Backlog, say: Say, *, verify: bool = True) -> Iterator[Figure]:
    """Send everything, then let the job work it off.

    Raises:
        FraudError: the job ended, or its results are wrong.
    """
    everything = backlog.warm_up + backlog.events
    started = time.monotonic()
    say(f"sending {everything:,} transactions")
    history.send(rig.installed, everything)
    sent = time.monotonic() - started
    yield Figure("simulator into Kafka", everything / sent, "events/s", (), "on both cores")
    rig.start_job()
    rig.catch_up(say)
    rig.stop_job()
    yield from _figures(rig.progress(), backlog)
    if verify:
        say("verifying against the oracle")
        yield _verified(rig)


def _figures(batches: list[dict[str, Any]], backlog: Backlog) -> Iterator[Figure]:
    done = 0
    before: dict[str, Any] | None = None
    measured: list[tuple[int, float]] = []
    phases: dict[str, list[float]] = {}
    for batch in batches:
        count = batch["counts"]["transactions"] + batch["counts"]["duplicates"]
        if count and done >= backlog.warm_up and before is not None:
            measured.append((count, (batch["written_at"] - before["written_at"]) / 1000))
            for name, ms in batch["phases_ms"].items():
                phases.setdefault(name, []).append(ms)
        done += count
        before = batch
    if not measured:
        raise BenchError("the warm-up took all transactions; give more --events")
    events, seconds = (sum(column) for column in zip(*measured, strict=True))
    rates = tuple(round(count / took) for count, took in measured)
    size = statistics.median(count for count, _ in measured)
    yield Figure(
        THROUGHPUT, events / seconds, "events/s", rates,
        f"{events:,} events in {len(measured)} batches, the median one of {size:,.0f}",
    )  # fmt: skip
    yield Figure("a batch", 1000 * statistics.median(took for _, took in measured), "ms", ())
    for name, found in phases.items():
        yield Figure(f"phase {name}", statistics.median(found), "ms", tuple(found))


def _verified(rig: Rig) -> Figure:
    verdict = audit.run(rig.installed.settings)
    found = verdict.report()
    wrong = found["missing"] + found["duplicated"] + found["unexpected"] + len(verdict.problems)
    if not verdict.is_clean:
        raise BenchError(f"the alerts are not the oracle's: {found}")
    detail = f"of {found['events']:,} events and {found['alerts']:,} alerts"
    return Figure("missing + duplicated + unexpected", wrong, "", (), detail)
