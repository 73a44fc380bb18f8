"""A thread that follows the alerts and labels of the running trial, if one of its guards needs them."""

import logging
import time
from collections.abc import Callable

from service.background import Background, text_of
from service.labels.errors import UnreadError
from service.precision import trial_topics
from service.precision.trial import LabelCounts, LabelledTrial
from service.settings import ServiceSettings

log = logging.getLogger(__name__)
RETRY_S = 1.0


class LabelFollower(Background):
    """The labelled cards of one trial at a time, kept up to date."""

    def __init__(
        self,
        settings: ServiceSettings,
        trial: Callable[[], LabelledTrial | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the thread without connecting.

        Args:
            trial: returns the trial to follow; None if there is none.
        """
        super().__init__("precision-follower")
        self._settings, self._trial, self._clock = settings, trial, clock
        self._followed = "", LabelCounts()  # replaced, never mutated: read without a lock

    def counts(self, rollout_id: str) -> LabelCounts | None:
        """Return the counts of a trial; after its end they stay until another trial is followed.

        Returns:
            None if the trial is not (yet) followed. If reading failed, or the thread has died: empty counts
            with the cause as `waiting_for`.
        """
        followed, counts = self._followed
        if self.has_ended:
            return LabelCounts(waiting_for="the thread that reads labels has died; restart the sidecar")
        return counts if followed == rollout_id else None

    def _run(self) -> None:
        while not self._stop.is_set():
            if (trial := self._trial()) is None:
                self._stop.wait(RETRY_S)
                continue
            try:
                self._follow(trial)
            except Exception as error:
                fault, is_known = text_of(error), isinstance(error, UnreadError)
                failed = trial.rollout_id, LabelCounts(waiting_for=fault)
                if failed != self._followed:
                    text = "rollout %s is not judged by labels: %s"
                    log.warning(text, trial.rollout_id, fault, exc_info=not is_known)
                self._followed = failed
                self._stop.wait(RETRY_S)

    def _follow(self, trial: LabelledTrial) -> None:
        """Read until `stop`, until another trial or none is to be followed, or until reading fails."""
        with trial_topics.opened(self._settings, trial, int(self._clock() * 1000)) as topics:
            while not self._stop.is_set() and self._trial() == trial:
                topics.read()
                self._followed = trial.rollout_id, topics.counts()
