"""Verdict on a run: every reason for which it is invalid or failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtests.audit.verify import AuditResult
from loadtests.locust_run.result import Result


@dataclass(frozen=True)
class Bounds:
    """Bounds of a run's measurements."""

    slip_p99_ms: float = 5.0
    """Maximal p99 of the generator's slip, the time from a transaction's due time to its sending; above it
    the actual load differs from the plan."""
    achieved_share: float = 0.99
    """Minimal achieved rate as a share of the offered rate."""
    backlog_s: float = 2.0
    """Maximal lag when everything was sent, in seconds of the offered rate."""
    p99_ms: float | None = None
    """Maximal p99 of the latency; None: no bound."""


@dataclass(frozen=True)
class Audit:
    """Result of `fraud verify` on the run's topics."""

    events: int
    """Number of audited transactions of the load test."""
    alerts: int
    """Number of their expected alerts."""
    missing: int
    duplicated: int
    unexpected: int
    problems: tuple[str, ...] = ()
    """Contradictions among the progress records, and between them and the outputs or the oracle."""
    examples: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, verdict: AuditResult, sent_before: int = 0, alerts_before: int = 0) -> "Audit":
        """Extract the counts of a verdict.

        Args:
            sent_before: transactions that were sent before the load test, which are not counted.
            alerts_before: alerts of these transactions, which are not counted.
        """
        report: Mapping[str, Any] = verdict.report()
        return cls(
            events=report["events"] - sent_before,
            alerts=report["alerts"] - alerts_before,
            missing=report["missing"],
            duplicated=report["duplicated"],
            unexpected=report["unexpected"],
            problems=tuple(verdict.problems),
            examples=tuple(verdict.findings.examples),
        )


def failures(result: Result, bounds: Bounds) -> list[str]:
    """Return every reason for which a run fails, except those of its audit; empty if it passes."""
    reasons = [f"fault: {result.fault}"] if result.fault else []
    reasons += [f"worker lost: {worker}" for worker in result.lost_workers]
    return [*reasons, *_generator(result, bounds), *_job(result, bounds)]


def _generator(result: Result, bounds: Bounds) -> list[str]:
    reasons = []
    if result.achieved_rate < bounds.achieved_share * result.offered_rate or not result.achieved_rate:
        reasons.append(
            f"achieved rate: {result.achieved_rate:,.0f} of {result.offered_rate:,.0f} transactions/s "
            f"offered, at least {bounds.achieved_share:.0%} required; use more --workers or brokers"
        )
    slip = result.slip_ms.get("p99")
    if slip is None or slip > bounds.slip_p99_ms:
        text = "not measured" if slip is None else f"{slip:,.1f} ms"
        reasons.append(
            f"generator's slip: p99 {text}, at most {bounds.slip_p99_ms:g} ms allowed; "
            "if the generator was late, run more --workers, or give it a core of its own"
        )
    if result.unsent:
        reasons.append(f"unsent: {result.unsent:,} transactions were due but are not acknowledged")
    return reasons


def _job(result: Result, bounds: Bounds) -> list[str]:
    reasons = []
    most = bounds.backlog_s * result.offered_rate
    if result.backlog_at_end is None:
        reasons.append("backlog: not known, because the run ended before everything was sent")
    elif result.backlog_at_end > most:
        reasons.append(
            f"backlog: the job was {result.backlog_at_end:,} transactions behind when sending ended, "
            f"at most {most:,.0f} allowed ({bounds.backlog_s:g} s of the rate)"
        )
    if result.drained_s is None:
        reasons.append("backlog: the job did not decide everything before --drain or the run was over")
    p99 = result.latency_ms.get("p99")
    if p99 is None:
        reasons.append(
            "latency: no alert was received for a transaction of the measured time; "
            "give a higher --rate or a longer --for"
        )
    elif bounds.p99_ms is not None and p99 > bounds.p99_ms:
        reasons.append(f"latency: p99 {p99:,.1f} ms, at most {bounds.p99_ms:g} ms allowed")
    return reasons


def audited(result: Result, audit: Audit, *, own_topics: bool) -> list[str]:
    """Return the reasons for which the audit fails a run; of several runs, `result` has the totals.

    Args:
        own_topics: whether no other producer writes to the topics. Then the number of audited transactions
            must be that of the acknowledged ones, and the workers must have received as many alerts as the
            audit expects.
    """
    reasons = []
    for name in ("missing", "duplicated", "unexpected"):
        if count := getattr(audit, name):
            reasons.append(
                f"{name}: {count:,} alerts or dead letters; "
                f"the audit's first finding of any kind: {(audit.examples or ('?',))[0]}"
            )
    if audit.problems:
        reasons.append(f"progress records: the audit found an inconsistency: {audit.problems[0]}")
    if own_topics and audit.events != result.acknowledged:
        reasons.append(
            f"not audited: {result.acknowledged:,} transactions were acknowledged, {audit.events:,} audited"
        )
    if own_topics and audit.alerts != result.alerts_seen:
        reasons.append(
            f"unseen: {audit.alerts:,} alerts had to be written, the workers saw {result.alerts_seen:,}"
        )
    return reasons
