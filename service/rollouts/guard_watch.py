"""A thread that applies the guards to the open rollout, and ends it after a breach or the deadline.

Any number of sidecars may watch the same rollout. The first one to write ends it. The desk refuses the
others, which then read the topic again.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from feature_store.errors import FraudError
from models.guards.findings import GuardOutcome
from models.rollouts.state import Trial
from service.background import Background, text_of
from service.health.groups import Groups
from service.precision.trial import LabelCounts
from service.rollouts.assessment import Assessment, assess, is_watched
from service.rollouts.desk import Desk
from service.rollouts.errors import FencedError, StaleError
from service.rollouts.history import History
from service.rollouts.requests import Stop

log = logging.getLogger(__name__)
INTERVAL_S = 1.0


@dataclass(frozen=True)
class CurrentVerdict:
    """The newest verdict on the open rollout."""

    assessment: Assessment
    since: int
    """Log time (`Assessment.log_time`) of the assessment since which the outcome has not changed, ms."""


class GuardWatch(Background):
    """Periodic assessment of the open rollout: in shadow, in canary and while it is paused."""

    def __init__(
        self,
        history: Callable[[], History],
        groups: Callable[[], Groups],
        desk: Desk,
        labels: Callable[[Trial], LabelCounts | None] = lambda trial: None,
    ) -> None:
        """Prepare the thread without starting it.

        Args:
            history: returns the history of rollouts; empty until the rollout topic is read to its end.
            groups: returns the newest progress record of each key group; empty until `job-progress` is read
                to its end.
            labels: returns the labelled cards of a rollout; None if they are not counted.
        """
        super().__init__("guard-watch")
        self._history, self._groups, self._desk = history, groups, desk
        self._labels = labels
        self.seen: CurrentVerdict | None = None
        """The newest verdict; None while no rollout is watched."""
        self.last: CurrentVerdict | None = None
        """The newest verdict, kept after the end of its rollout; None before the first verdict.

        A breach ends its rollout within a second, so a periodic reader of `seen` would miss it.
        """
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the last assessment failed; None if it did not."""
        if self.has_ended:
            return "the thread that watches the guards has died; restart the sidecar"
        return self._fault

    def look(self) -> None:
        """Assess the open rollout once, and end it if its guards demand it.

        Raises:
            FraudError: the counts cannot be read, or the rollout cannot be ended; the next call tries again.
        """
        history, groups = self._history(), self._groups()
        trial = history.line.open_trial
        if trial is None or not is_watched(trial):
            self.seen = None
            return
        assessment = assess(history, trial, groups, self._labels(trial))
        self._remember(assessment)
        if ending := ending_of(assessment):
            log.critical("rollout %s: %s", trial.rollout_id, ending.reason)
            self._end(ending)

    def _end(self, ending: Stop) -> None:
        """End the rollout, however often other writers fence this one; raises FraudError."""
        while not self._stop.is_set():
            try:
                self._desk.stop(ending)
            except FencedError as fault:
                log.warning("rollout %s is not rolled back yet: %s", ending.rollout_id, fault)
                continue
            except StaleError as fault:
                # another sidecar or a person has changed the rollout meanwhile
                log.warning("rollout %s was not rolled back here: %s", ending.rollout_id, fault)
                return
            log.critical("rollout %s is rolled back; the champion decides for every card", ending.rollout_id)
            return

    def _remember(self, assessment: Assessment) -> None:
        before = self.seen
        is_same = (
            before is not None
            and before.assessment.rollout_id == assessment.rollout_id
            and before.assessment.outcome is assessment.outcome
        )
        since = before.since if before is not None and is_same else assessment.log_time
        if not is_same:
            log.info("rollout %s: verdict of the guards: %s", assessment.rollout_id, assessment.outcome)
        self.seen = self.last = CurrentVerdict(assessment, since)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            try:
                self.look()
                self._fault = None
            except Exception as error:  # whatever it is, nothing else would end a rollout at the next breach
                fault = text_of(error)
                if fault != self._fault:
                    log.error("guards: %s", fault, exc_info=not isinstance(error, FraudError))
                self._fault = fault


def ending_of(assessment: Assessment) -> Stop | None:
    """Return the request to end a rollout if its assessment demands that; None if it may continue."""
    if assessment.outcome is GuardOutcome.BREACH:
        breach = assessment.breach()
        assert breach is not None
        return Stop(
            assessment.rollout_id,
            assessment.seq,
            f"guard {breach.guard} is breached by {breach.challenger}: {breach.detail}",
            breach.challenger,
            breach.guard,
            breach.evidence,
        )
    if assessment.is_overdue:
        hours = next(iter(assessment.verdicts.values())).guards.deadline_h
        return Stop(
            assessment.rollout_id,
            assessment.seq,
            f"deadline: verdict still insufficient {hours:g} hours after the shadow began",
        )
    return None
