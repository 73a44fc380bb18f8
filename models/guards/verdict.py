"""Verdict on a challenger: what all guards of a rollout say of its counts, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from models.errors import GuardError
from models.guards import policy
from models.guards.counts import Counts
from models.guards.findings import Finding, Outcome
from models.guards.policy import Guards

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Verdict:
    """What the guards say of one challenger; a pure function of `counts` and `guards`."""

    outcome: Outcome
    """breach if any guard says so, pass if all do, else insufficient."""
    findings: tuple[Finding, ...]
    """Of each guard, in the rollout's order."""
    counts: Counts
    """All that was looked at."""
    guards: Guards
    """The guards that looked."""

    @property
    def breaches(self) -> tuple[Finding, ...]:
        """The guards that say breach."""
        return tuple(finding for finding in self.findings if finding.outcome is Outcome.BREACH)

    @property
    def without_data(self) -> tuple[str, ...]:
        """Names of the guards that have seen nothing; a canary may not begin before there are none."""
        return tuple(finding.guard for finding in self.findings if not finding.has_data)

    def to_json(self) -> dict[str, Any]:
        """The evidence, of Python's own types, numbers finite: `verdict` of a breached event."""
        return {
            "verdict": self.outcome.value,
            "findings": [finding.to_json() for finding in self.findings],
            "counts": self.counts.to_json(),
            "guards": self.guards.to_json(),
        }


def verdict(counts: Mapping[str, Any] | Counts, guards: Guards) -> Verdict:
    """Judge a challenger.

    Args:
        counts: COUNTS of the challenger, summed over the key groups (`Counts.of_groups`), or one object.
        guards: of the rollout.

    Raises:
        GuardError: these are no counts.
    """
    known = counts if isinstance(counts, Counts) else Counts.from_json(counts)
    findings = tuple(rule.judge(known, guards.limits) for rule in guards.rules)
    said = {finding.outcome for finding in findings}
    outcome = Outcome.INSUFFICIENT
    if Outcome.BREACH in said:
        outcome = Outcome.BREACH
    elif said == {Outcome.PASS}:
        outcome = Outcome.PASS
    return Verdict(outcome, findings, known, guards)


def recomputed(evidence: Mapping[str, Any]) -> Verdict:
    """The verdict again, from the counts and guards in its evidence; its `to_json` must be the evidence.

    Raises:
        GuardError: the evidence cannot be read.
    """
    try:
        counts, guards = evidence["counts"], evidence["guards"]
    except (KeyError, TypeError) as error:
        raise GuardError(
            "the evidence has no counts or no guards; take a breached event's verdict"
        ) from error
    return verdict(counts, policy.read(guards))


class Step(StrEnum):
    """What follows from a verdict."""

    HOLD = "hold"
    """Stay as it is."""
    MAY_ADVANCE = "may_advance"
    """A person may go on; nothing goes on by itself."""
    BREACHED = "breached"
    """Write `breached` and `rolled_back`."""
    ROLL_BACK = "roll_back"
    """Write `rolled_back`: the deadline has passed without proof."""


def next_step(said: Verdict, *, shadow_started_at: int, now: int) -> Step:
    """What to do now.

    Args:
        said: the verdict on the challenger.
        shadow_started_at: Kafka timestamp of `shadow_started`, ms.
        now: log time, ms: the newest arrival that the counts include, or a later record of the broker's.
    """
    if said.outcome is Outcome.BREACH:
        return Step.BREACHED
    if said.outcome is Outcome.PASS:
        return Step.MAY_ADVANCE
    late = now - shadow_started_at >= said.guards.deadline_h * HOUR_MS
    return Step.ROLL_BACK if late else Step.HOLD
