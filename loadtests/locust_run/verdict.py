"""Whether a run may be believed and was passed: every reason against it, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtests.audit.verify import Verdict
from loadtests.locust_run.result import Result


@dataclass(frozen=True)
class Bounds:
    """What a run may have at most, or at least."""

    slip_p99_ms: float = 5.0
    """Of the generator: above it, latencies are of another load than was asked for."""
    achieved_share: float = 0.99
    """Of the offered rate, at least."""
    backlog_s: float = 2.0
    """Job's lag when everything was sent, in seconds of the offered rate."""
    p99_ms: float | None = None
    """Latency; None: any."""


@dataclass(frozen=True)
class Audit:
    """What `fraud verify` found over the run's topics."""

    events: int
    """Transactions audited."""
    alerts: int
    """That had to be."""
    missing: int
    duplicated: int
    unexpected: int
    problems: tuple[str, ...] = ()
    """Where the job's own account does not agree."""
    examples: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, verdict: Verdict) -> "Audit":
        """The same of a verdict."""
        report: Mapping[str, Any] = verdict.report()
        return cls(
            events=report["events"],
            alerts=report["alerts"],
            missing=report["missing"],
            duplicated=report["duplicated"],
            unexpected=report["unexpected"],
            problems=tuple(verdict.problems),
            examples=tuple(verdict.findings.examples),
        )


def failures(
    result: Result, bounds: Bounds, audit: Audit | None = None, *, own_topics: bool = False
) -> list[str]:
    """Every reason for which a run fails; none if it passes.

    Args:
        result: what the workers measured.
        bounds: of it.
        audit: None: not made (its findings are not looked at).
        own_topics: nobody else writes to the topics: what was audited must be what was sent, and every alert
            must have been seen by the workers.
    """
    found = [f"fault: {result.fault}"] if result.fault else []
    found += [f"worker lost: {worker}" for worker in result.lost_workers]
    found += _generator(result, bounds)
    found += _job(result, bounds)
    if audit is not None:
        found += _audited(result, audit, own_topics=own_topics)
    return found


def _generator(result: Result, bounds: Bounds) -> list[str]:
    found = []
    if result.achieved_rate < bounds.achieved_share * result.offered_rate or not result.achieved_rate:
        found.append(
            f"achieved rate: {result.achieved_rate:,.0f} of {result.offered_rate:,.0f} transactions/s "
            f"offered, at least {bounds.achieved_share:.0%} must be; more --workers, or brokers, are needed"
        )
    slip = result.slip_ms.get("p99")
    if slip is None or slip > bounds.slip_p99_ms:
        text = "not measured" if slip is None else f"{slip:,.1f} ms"
        found.append(
            f"generator's slip: p99 {text}, at most {bounds.slip_p99_ms:g} ms; the generator was late: "
            "run more --workers, or give it a core of its own"
        )
    if result.unsent:
        found.append(f"unsent: {result.unsent:,} transactions were due and are not on the topic")
    return found


def _job(result: Result, bounds: Bounds) -> list[str]:
    found = []
    most = bounds.backlog_s * result.offered_rate
    if result.backlog_at_end is None:
        found.append("backlog: the job's lag at the end is not known; does it run with this FRAUD_JOB_ID?")
    elif result.backlog_at_end > most:
        found.append(
            f"backlog: the job was {result.backlog_at_end:,} transactions behind at the end, "
            f"at most {most:,.0f} ({bounds.backlog_s:g} s of the rate)"
        )
    if result.drained_s is None:
        found.append("backlog: the job did not decide everything in the time that --drain gives")
    p99 = result.latency_ms.get("p99")
    if p99 is None:
        found.append("latency: no alert came in the measured time; give a higher --rate or a longer --for")
    elif bounds.p99_ms is not None and p99 > bounds.p99_ms:
        found.append(f"latency: p99 {p99:,.1f} ms, at most {bounds.p99_ms:g} ms")
    return found


def _audited(result: Result, audit: Audit, *, own_topics: bool) -> list[str]:
    found = []
    for name in ("missing", "duplicated", "unexpected"):
        if count := getattr(audit, name):
            found.append(f"{name}: {count:,} alerts or dead letters; first: {(audit.examples or ('?',))[0]}")
    if audit.problems:
        found.append(f"account: job-progress does not agree: {audit.problems[0]}")
    if own_topics and audit.events != result.acknowledged:
        found.append(
            f"not audited: {result.acknowledged:,} transactions were acknowledged, {audit.events:,} audited"
        )
    if own_topics and audit.alerts != result.alerts_seen:
        found.append(
            f"unseen: {audit.alerts:,} alerts had to be, the workers' consumers saw {result.alerts_seen:,}"
        )
    return found
