"""The parts behind the rollouts' endpoints: the threads that follow topics, and the desk that writes."""

import time
from collections.abc import Callable, Iterator

from models.guards.counts import Labelled
from models.guards.findings import GuardOutcome
from models.rollouts.state import Trial
from service.health.groups import Groups
from service.precision.follower import LabelFollower
from service.precision.trial import LabelCounts
from service.precision.trial_topics import UNREAD
from service.progress_reader import ProgressReader
from service.rollouts import labelling, reading
from service.rollouts.alias_mirror import AliasMirror
from service.rollouts.assessment import is_watched
from service.rollouts.desk import Desk
from service.rollouts.guard_watch import GuardWatch
from service.rollouts.history import History
from service.rollouts.model_registry import ModelRegistry
from service.rollouts.reader import RolloutReader
from service.rollouts.reading import Job
from service.settings import ServiceSettings


class RolloutParts:
    """The parts of one sidecar that deal with rollouts."""

    def __init__(
        self,
        settings: ServiceSettings,
        progress: ProgressReader,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the parts without starting the threads."""
        self.settings, self.progress = settings, progress
        self.registry = ModelRegistry(settings.mlflow_tracking_uri)
        self.reader = RolloutReader(settings, lambda: Job(progress.groups).set_aside)
        self.labels = LabelFollower(settings, lambda: labelling.running(self._complete_history()), clock)
        self.desk = Desk(settings, clock, self.job, self.registry, labels=self.label_counts)
        self.guards = GuardWatch(self._complete_history, self._complete, self.desk, labels=self.label_counts)
        self.mirror = AliasMirror(self._complete_history, self.registry.point)

    def job(self) -> Job:
        """Return the job's newest progress: from the brokers until `progress` has caught up, then from it."""
        complete = self._complete()
        return Job(complete) if complete else reading.job(self.settings)

    def label_counts(self, trial: Trial) -> LabelCounts:
        """Return the labelled cards of a rollout; after its end they may be unknown."""
        counts = self.labels.counts(trial.rollout_id)
        if counts is not None:
            return counts
        if is_watched(trial):
            return LabelCounts(waiting_for=UNREAD)
        return LabelCounts(
            waiting_for="labels are followed only while challengers score; `fraud rollouts show "
            f"{trial.rollout_id} --verdict` counts them"
        )

    def findings(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield the guards' results on the last watched rollout: (rollout_id, challenger, guard, verdict).

        None while they cannot be assessed, so that the absence of the metric is noticed; but a breach stays.
        """
        seen = self.guards.last
        fault = self.guards.fault or self.reader.missing or self.progress.missing
        if seen is None or (fault and seen.assessment.outcome is not GuardOutcome.BREACH):
            return
        for challenger, verdict in seen.assessment.verdicts.items():
            for finding in verdict.findings:
                yield seen.assessment.rollout_id, challenger, finding.guard, finding.outcome.value

    def labelled(self) -> Iterator[tuple[str, str, str, Labelled]]:
        """Yield the labelled cards of the last watched rollout: (rollout_id, challenger, role, counts)."""
        if (seen := self.guards.last) is None:
            return
        for challenger, verdict in seen.assessment.verdicts.items():
            counts = verdict.counts
            for role, cards in (("challenger", counts.labelled), ("champion", counts.champion_labelled)):
                if cards is not None:
                    yield seen.assessment.rollout_id, challenger, role, cards

    def _complete(self) -> Groups:
        """Return the newest progress records; empty until the topic has been read to its end."""
        return self.progress.groups if self.progress.waiting_for is None else {}

    def _complete_history(self) -> History:
        """Return the history; an empty one until the topic has been read to its end."""
        return self.reader.history if self.reader.waiting_for is None else History()

    def start(self) -> None:
        """Start the threads."""
        self.reader.start()
        self.labels.start()
        self.guards.start()
        if self.registry.is_set:
            self.mirror.start()

    def stop(self) -> None:
        """Stop the threads."""
        if self.registry.is_set:
            self.mirror.stop()
        self.guards.stop()
        self.labels.stop()
        self.reader.stop()
