"""Diagnosis of the whole job: its verdict, and all reasons that need action. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.health.codes import REGISTRY, Verdict
from service.health.groups import Groups
from service.health.lag import Lag
from service.health.monitor import Assessment
from service.health.readiness import Check
from service.health.recent import Recent
from service.health.rollout_progress import unusable


@dataclass(frozen=True)
class Reason:
    """A problem of the job."""

    code: str
    """Name in the registry of codes."""
    detail: str
    since_s: float | None = None
    """Onset, seconds since 1970-01-01 UTC; None if unknown."""

    @property
    def verdict(self) -> Verdict:
        """The code's verdict."""
        return REGISTRY[self.code].verdict


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on the job, with all reasons, the most severe first."""

    verdict: Verdict
    reasons: tuple[Reason, ...]


def diagnose(
    now_s: float, checks: Sequence[Check], assessment: Assessment | None, lag: Lag | None, groups: Groups
) -> Diagnosis:
    """Diagnose the job from checks, partition verdicts, ages, recent counts and rollouts.

    Args:
        assessment: the monitor's newest assessment of the input partitions; None before the first.
        lag: lag of all input partitions, from the brokers' offsets; None before the first answer.
    """
    reasons = [
        *_of_checks(checks, groups),
        *_of_partitions(assessment),
        *_of_ages(now_s, assessment, lag, groups),
        *_of_counts(assessment.recent if assessment is not None else None),
        *_of_rollouts(groups),
    ]
    reasons.sort(key=lambda reason: -reason.verdict.severity)
    fine = assessment.verdict if assessment is not None and assessment.verdict.is_fine else Verdict.OK
    return Diagnosis(reasons[0].verdict if reasons else fine, tuple(reasons))


def _of_checks(checks: Sequence[Check], groups: Groups) -> Iterator[Reason]:
    for check in checks:
        for reason in check.reasons:
            # open_transaction comes from the partitions' findings, with its onset; loading_tables is added
            # below, all groups in one reason
            if check.code not in ("open_transaction", "loading_tables"):
                yield Reason(check.code, reason, _silent_since(check, groups))
        if check.code == "loading_tables" and check.reasons:
            yield Reason(check.code, "; ".join(check.reasons))


def _silent_since(check: Check, groups: Groups) -> float | None:
    if check.code != "group_silent":
        return None
    return min((record["written_at"] / 1e3 for record in groups.values()), default=None)


def _of_partitions(assessment: Assessment | None) -> Iterator[Reason]:
    for (topic, partition), finding in (assessment.findings if assessment else {}).items():
        if not finding.verdict.is_fine:
            yield Reason(finding.code, f"{topic}-{partition}: {finding.detail}", finding.since_s)


def _of_ages(
    now_s: float, assessment: Assessment | None, lag: Lag | None, groups: Groups
) -> Iterator[Reason]:
    if assessment is None:
        return
    heartbeat = lag.feed_ms.get("heartbeat") if lag is not None else None
    if heartbeat is not None and now_s - heartbeat / 1e3 > assessment.heartbeat_s:
        age = f"{now_s - heartbeat / 1e3:.0f} s old (limit {assessment.heartbeat_s:.0f} s)"
        text = f"the newest heartbeat of the profiles' feed is {age}"
        yield Reason("feed_silent", text, heartbeat / 1e3)
    for group, epoch in assessment.epochs.items():
        written_s = _number(groups.get(group), "written_at") / 1e3
        # the age as of the group's newest record: it does not grow in a silent group (see group_silent)
        if written_s - epoch.since_s > assessment.epoch_s:
            lasts = f"{written_s - epoch.since_s:.0f} s (limit {assessment.epoch_s:.0f} s)"
            yield Reason(
                "checkpoint_old", f"key group {group}: epoch {epoch.number} lasts {lasts}", epoch.since_s
            )


def _of_counts(recent: Recent | None) -> Iterator[Reason]:
    if recent is None:
        return
    during = f"in the last {recent.window_s:.0f} s"
    for name, count in recent.inputs.items():
        if count.is_mostly_dead:
            share = f"{count.dead_letters} of {count.records} records are dead letters {during}"
            yield Reason("mostly_dead_letters", f"{name}: {share}")
    if recent.model_fails:
        share = f"{recent.scoring_failures} of {recent.transactions} transactions have no score {during}"
        yield Reason("model_fails", f"{share}: the policy's other rules decide them alone")
    if recent.foreign_facts:
        skipped = f"{recent.foreign_facts} records that no job wrote were skipped {during}"
        yield Reason("foreign_facts", f"merchant facts: {skipped}")
    if recent.retired:
        late = f"{recent.retired} transactions came to a topic that the job has left {during}"
        yield Reason("retired_topic", f"{late}: they become dead letters and are not decided")


def _of_rollouts(groups: Groups) -> Iterator[Reason]:
    for group, record in groups.items():
        for offset, cause in unusable(record).items():
            yield Reason("rollouts_set_aside", f"key group {group}: rollout at offset {offset}: {cause}")


def _number(record: Mapping[str, Any] | None, name: str) -> float:
    return float(record[name]) if record is not None else 0.0
