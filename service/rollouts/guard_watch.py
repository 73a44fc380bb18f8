"""Watches the open rollout by its guards, and ends it when one is breached or the deadline has passed.

Any number of sidecars may watch the same rollout: the first one to write ends it, the others are refused by
the desk and read again.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feature_store.errors import FraudError
from models.guards.findings import Outcome
from service.background import Background
from service.rollouts.assessment import Assessment, assess, is_watched
from service.rollouts.desk import Desk
from service.rollouts.errors import StaleError
from service.rollouts.history import History
from service.rollouts.requests import Stop

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seen:
    """The newest verdict on the open rollout."""

    assessment: Assessment
    since: int
    """Since when the verdict has been this one, ms of the log's time."""


class GuardWatch(Background):
    """Judges the open rollout now and then; in shadow, canary and while it is paused."""

    def __init__(
        self,
        history: Callable[[], History],
        groups: Callable[[], Mapping[int, Mapping[str, Any]]],
        desk: Desk,
        interval_s: float = 1.0,
    ) -> None:
        """Judge nothing yet.

        Args:
            history: tells the rollout topic as far as it is known.
            groups: tells the newest progress record of each key group; nothing until all have been read.
            desk: writes what follows from a breach.
            interval_s: time between two looks.
        """
        super().__init__("guard-watch")
        self._history, self._groups, self._desk = history, groups, desk
        self._interval_s = interval_s
        self._seen: Seen | None = None
        self._last: Seen | None = None
        self._fault: str | None = None

    @property
    def seen(self) -> Seen | None:
        """The newest verdict; None while nothing is watched."""
        return self._seen

    @property
    def last(self) -> Seen | None:
        """The newest verdict, of a rollout that is over, too, until another one is watched.

        A breach ends its rollout within a second: who asks now and then would miss it.
        """
        return self._last

    @property
    def fault(self) -> str | None:
        """Why the last look failed; None when it did not."""
        if self.has_died:
            return "the thread that watches the guards has died; restart the sidecar"
        return self._fault

    def look(self) -> None:
        """Judge the open rollout once, and end it if its guards say so.

        Raises:
            FraudError: the counts cannot be read, or the end could not be written: the next look tries again.
        """
        history, groups = self._history(), self._groups()
        trial = history.line.trials[history.line.open] if history.line.open is not None else None
        if trial is None or not is_watched(trial):
            self._seen = None
            return
        found = assess(history, trial, groups)
        self._remember(found)
        if ending := ending_of(found):
            log.critical("rollout %s: %s", trial.rollout_id, ending.reason)
            try:
                self._desk.stop(ending)
                log.critical(
                    "rollout %s is rolled back; the champion decides for every card", trial.rollout_id
                )
            except StaleError as fault:
                # another sidecar, or a person, was faster
                log.warning("rollout %s was not rolled back here: %s", trial.rollout_id, fault)

    def _remember(self, found: Assessment) -> None:
        before = self._seen
        is_same = (
            before is not None
            and before.assessment.rollout_id == found.rollout_id
            and before.assessment.outcome is found.outcome
        )
        since = before.since if before is not None and is_same else found.log_time
        if not is_same:
            log.info("rollout %s: the guards say %s", found.rollout_id, found.outcome)
        self._seen = self._last = Seen(found, since)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.look()
                self._fault = None
            except FraudError as fault:
                if str(fault) != self._fault:
                    log.error("guards: %s", fault)
                self._fault = str(fault)


def ending_of(found: Assessment) -> Stop | None:
    """What is to be written because of an assessment; None: nothing, it holds."""
    if found.outcome is Outcome.BREACH:
        broken = found.breach()
        assert broken is not None
        return Stop(
            found.rollout_id,
            found.seq,
            f"guard {broken.guard} is breached by {broken.challenger}: {broken.detail}",
            broken.challenger,
            broken.guard,
            broken.evidence,
        )
    if found.is_overdue:
        hours = next(iter(found.verdicts.values())).guards.deadline_h
        return Stop(
            found.rollout_id,
            found.seq,
            f"deadline: no verdict {hours:g} hours after the shadow began",
        )
    return None
