"""The verdict of all guards of a rollout on a challenger, and the step that follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from feature_store.catalogue import HOUR_MS
from models.errors import GuardError
from models.guards import policy
from models.guards.counts import PairedCounts
from models.guards.findings import Finding, GuardOutcome
from models.guards.policy import Guards


@dataclass(frozen=True)
class GuardVerdict:
    """The guards' verdict on one challenger; a pure function of `counts` and `guards`."""

    outcome: GuardOutcome
    """Breach if any guard is breached, pass if all guards pass, else insufficient."""
    findings: tuple[Finding, ...]
    """One finding per guard, in the order of the rollout's guards."""
    counts: PairedCounts
    guards: Guards

    @property
    def breaches(self) -> tuple[Finding, ...]:
        """Findings of the breached guards."""
        return tuple(finding for finding in self.findings if finding.outcome is GuardOutcome.BREACH)

    @property
    def without_data(self) -> tuple[str, ...]:
        """Names of the guards that have had no data; a canary may not begin while there are any."""
        return tuple(finding.guard for finding in self.findings if not finding.has_data)

    def to_json(self) -> dict[str, Any]:
        """Return the evidence, the field `verdict` of a `breached` event: built-in types, finite numbers."""
        return {
            "verdict": self.outcome.value,
            "findings": [finding.to_json() for finding in self.findings],
            "counts": self.counts.to_json(),
            "guards": self.guards.to_json(),
        }

    def agrees_with(self, evidence: Mapping[str, Any]) -> bool:
        """Return whether evidence holds all values of this verdict; further fields are ignored."""
        return all(evidence.get(field) == value for field, value in self.to_json().items())


def verdict(counts: Mapping[str, Any] | PairedCounts, guards: Guards) -> GuardVerdict:
    """Judge a challenger.

    Args:
        counts: the challenger's counts, summed over the key groups by `Counts.of_groups`, or their JSON.
    """
    paired = counts if isinstance(counts, PairedCounts) else PairedCounts.from_json(counts)
    findings = tuple(rule.judge(paired, guards.limits) for rule in guards.rules)
    return GuardVerdict(GuardOutcome.of(finding.outcome for finding in findings), findings, paired, guards)


def recomputed(evidence: Mapping[str, Any]) -> GuardVerdict:
    """Recompute a verdict from the counts and guards in its evidence; `agrees_with` compares the result.

    Raises:
        GuardError: the evidence cannot be read.
    """
    try:
        counts, guards = evidence["counts"], evidence["guards"]
    except (KeyError, TypeError) as error:
        raise GuardError(
            "the evidence has no counts or no guards; give the field `verdict` of a breached event"
        ) from error
    return verdict(counts, policy.read(guards))


class NextStep(StrEnum):
    """Step that follows from a verdict."""

    HOLD = "hold"
    """Leave the rollout as it is."""
    MAY_ADVANCE = "may_advance"
    """A person may take the next step; a rollout never advances by itself."""
    BREACHED = "breached"
    """Write `breached` and `rolled_back`."""
    ROLL_BACK = "roll_back"
    """Write `rolled_back`: the deadline has passed without proof."""


def next_step(result: GuardVerdict, *, shadow_started_at: int, now: int) -> NextStep:
    """Return the step that follows from a verdict.

    Args:
        shadow_started_at: Kafka timestamp of `shadow_started`, ms.
        now: log time, ms: when the newest of the counted progress records was written.
    """
    if result.outcome is GuardOutcome.BREACH:
        return NextStep.BREACHED
    if result.outcome is GuardOutcome.PASS:
        return NextStep.MAY_ADVANCE
    late = now - shadow_started_at >= result.guards.deadline_h * HOUR_MS
    return NextStep.ROLL_BACK if late else NextStep.HOLD
