"""What the guards say of a rollout, by the counts in the job's progress: pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.guards import policy
from models.guards.counts import Counts
from models.guards.findings import Outcome
from models.guards.verdict import Step, Verdict, next_step, verdict
from models.rollouts.events import Type
from models.rollouts.machine import TRIED, Trial
from service.rollouts.history import History


@dataclass(frozen=True)
class Broken:
    """A guard that a challenger has breached."""

    challenger: str
    guard: str
    detail: str
    evidence: dict[str, Any]
    """The whole verdict on the challenger, from which it can be computed again."""


@dataclass(frozen=True)
class Assessment:
    """The verdicts on all challengers of a rollout."""

    rollout_id: str
    seq: int
    """Of the rollout when this was computed."""
    verdicts: Mapping[str, Verdict]
    """By name of the challenger."""
    commits: Mapping[int, int]
    """Key group -> commit_id of the progress record whose totals were counted."""
    log_time: int
    """When the newest of those records was written, ms."""
    shadow_started_at: int | None
    """Kafka timestamp of `shadow_started`, ms; None before it."""

    @property
    def outcome(self) -> Outcome:
        """Breach if any verdict is, pass if all are, else insufficient."""
        said = {one.outcome for one in self.verdicts.values()}
        if Outcome.BREACH in said:
            return Outcome.BREACH
        return Outcome.PASS if said == {Outcome.PASS} else Outcome.INSUFFICIENT

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed, by the log's time, without a verdict on some challenger."""
        started = self.shadow_started_at
        return started is not None and any(
            next_step(one, shadow_started_at=started, now=self.log_time) is Step.ROLL_BACK
            for one in self.verdicts.values()
        )

    def breach(self) -> Broken | None:
        """The first guard that is breached, in the order of challengers and guards."""
        for name, found in self.verdicts.items():
            for finding in found.breaches:
                return Broken(name, finding.guard, finding.detail, found.to_json())
        return None

    def without_data(self, challenger: str) -> tuple[str, ...]:
        """The guards that have seen nothing of a challenger."""
        return self.verdicts[challenger].without_data

    def to_json(self) -> dict[str, Any]:
        """The answer of `GET /v1/rollouts/{id}/verdict`; holds all from which it can be computed again."""
        return {
            "rollout_id": self.rollout_id,
            "seq": self.seq,
            "verdict": self.outcome.value,
            "overdue": self.is_overdue,
            "challengers": {name: one.to_json() for name, one in self.verdicts.items()},
            "commits": {str(group): commit for group, commit in sorted(self.commits.items())},
            "log_time": self.log_time,
            "shadow_started_at": self.shadow_started_at,
        }


def assess(history: History, trial: Trial, groups: Mapping[int, Mapping[str, Any]]) -> Assessment:
    """Judge a rollout's challengers.

    Args:
        history: tells when the shadow began.
        trial: the rollout.
        groups: newest progress record of each key group.

    Raises:
        GuardError: the progress records hold no counts, or the guards are of another release.
    """
    guards = policy.read(trial.guards)
    started = [
        entry.timestamp
        for entry in history.accepted(trial.rollout_id)
        if entry.event.type is Type.SHADOW_STARTED
    ]
    return Assessment(
        trial.rollout_id,
        trial.seq,
        {one.name: verdict(counts(groups, trial.rollout_id, one.name), guards) for one in trial.challengers},
        {group: int(record["commit_id"]) for group, record in groups.items()},
        max((int(record["written_at"]) for record in groups.values()), default=0),
        started[-1] if started else None,
    )


def counts(groups: Mapping[int, Mapping[str, Any]], rollout_id: str, challenger: str) -> Counts:
    """COUNTS of a challenger, summed over the key groups; zeros where none has told of it."""
    told = (
        record["totals"].get("trials", {}).get(rollout_id, {}).get("challengers", {}).get(challenger)
        for _, record in sorted(groups.items())
    )
    return Counts.of_groups(Counts.from_json(one) for one in told if one is not None)


def is_watched(trial: Trial) -> bool:
    """Whether guards look at a rollout: while its challengers are scored."""
    return trial.phase in TRIED
