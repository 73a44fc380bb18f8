"""The guards' assessment of a rollout, from the job's counts and from labelled cards. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from models.guards import policy
from models.guards.counts import Labelled, PairedCounts
from models.guards.findings import GuardOutcome
from models.guards.verdict import GuardVerdict, NextStep, next_step, verdict
from models.rollouts.events import Type
from models.rollouts.state import TRIED, Trial
from service.health.groups import Groups
from service.precision.trial import LabelCounts
from service.rollouts.history import History

NO_LABELS = LabelCounts(waiting_for="labels are counted from the start of the shadow on")


@dataclass(frozen=True)
class Breach:
    """A guard that a challenger has breached."""

    challenger: str
    guard: str
    detail: str
    evidence: dict[str, Any]
    """The complete verdict on the challenger, with all data to recompute it; and `commits`: key group ->
    commit_id of the progress record whose totals were counted."""


@dataclass(frozen=True)
class Assessment:
    """The verdicts on all challengers of a rollout."""

    rollout_id: str
    seq: int
    """The rollout's seq at the time of the assessment."""
    verdicts: Mapping[str, GuardVerdict]
    """Name of the challenger -> verdict."""
    commits: Mapping[int, int]
    """Key group -> commit_id of the progress record whose totals were counted."""
    log_time: int
    """Time at which the newest of these progress records was written, ms."""
    shadow_started_at: int | None
    """Kafka timestamp of `shadow_started`, ms; None before it."""
    waiting_for: str | None = None
    """Why labels that a guard needs are not judged yet; None if they are, or if no guard needs any."""

    @property
    def outcome(self) -> GuardOutcome:
        """Breach if any verdict is, pass if all are, else insufficient."""
        return GuardOutcome.of(result.outcome for result in self.verdicts.values())

    @property
    def is_overdue(self) -> bool:
        """Whether a challenger's verdict is insufficient and the guards' deadline had passed at `log_time`.

        False while labels are missing: after a restart the sidecar has to read them first, and the guards may
        pass once it has.
        """
        started = self.shadow_started_at
        if started is None or self.waiting_for is not None:
            return False
        return any(
            next_step(result, shadow_started_at=started, now=self.log_time) is NextStep.ROLL_BACK
            for result in self.verdicts.values()
        )

    def breach(self) -> Breach | None:
        """Return the first breached guard, in the order of challengers and guards."""
        for name, result in self.verdicts.items():
            for finding in result.breaches:
                evidence = {**result.to_json(), "commits": self._commits_json()}
                return Breach(name, finding.guard, finding.detail, evidence)
        return None

    def without_data(self, challenger: str) -> tuple[str, ...]:
        """Return the guards that have had no data on a challenger."""
        return self.verdicts[challenger].without_data

    def to_json(self) -> dict[str, Any]:
        """Return the answer of `GET /v1/rollouts/{id}/verdict`; it has all data to recompute the verdict."""
        return {
            "rollout_id": self.rollout_id,
            "seq": self.seq,
            "verdict": self.outcome.value,
            "overdue": self.is_overdue,
            "challengers": {name: result.to_json() for name, result in self.verdicts.items()},
            "commits": self._commits_json(),
            "log_time": self.log_time,
            "shadow_started_at": self.shadow_started_at,
            "waiting_for": self.waiting_for,
        }

    def _commits_json(self) -> dict[str, int]:
        return {str(group): commit for group, commit in sorted(self.commits.items())}


def assess(
    history: History,
    trial: Trial,
    groups: Groups,
    labels: LabelCounts | None = None,
) -> Assessment:
    """Judge a rollout's challengers.

    Args:
        labels: labelled cards of the rollout; ignored if no guard needs them.
    """
    guards = policy.read(trial.guards)
    by_label = (labels or NO_LABELS) if guards.need_labels else None
    started = [
        entry.timestamp
        for entry in history.accepted(trial.rollout_id)
        if entry.event.type is Type.SHADOW_STARTED
    ]
    return Assessment(
        trial.rollout_id,
        trial.seq,
        {
            challenger.name: verdict(counts(groups, trial.rollout_id, challenger.name, by_label), guards)
            for challenger in trial.challengers
        },
        {group: int(record["commit_id"]) for group, record in groups.items()},
        max((int(record["written_at"]) for record in groups.values()), default=0),
        started[-1] if started else None,
        by_label.waiting_for if by_label is not None else None,
    )


def counts(
    groups: Groups,
    rollout_id: str,
    challenger: str,
    labels: LabelCounts | None = None,
) -> PairedCounts:
    """Sum the counts of a challenger over the key groups' totals; zeros if no record has any.

    Args:
        labels: added unless they are incomplete, or the challenger has scored nothing.
    """
    by_group = (
        record["totals"]["trials"].get(rollout_id, {}).get("challengers", {}).get(challenger)
        for _, record in sorted(groups.items())
    )
    total = PairedCounts.of_groups(PairedCounts.from_json(item) for item in by_group if item is not None)
    # a shadow alert is written only where the models disagree: a challenger that has scored nothing has none,
    # and would be credited with the champion's alerts
    if labels is None or labels.waiting_for is not None or not total.transactions:
        return total
    labelled = labels.challengers.get(challenger, Labelled())
    return replace(total, labelled=labelled, champion_labelled=labels.champion)


def is_watched(trial: Trial) -> bool:
    """Return whether guards watch a rollout, which they do while its challengers score transactions."""
    return trial.phase in TRIED
