"""The parts behind the rollouts' endpoints, put together: threads that follow, the desk that writes."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from service.progress_reader import ProgressReader
from service.rollouts import reading
from service.rollouts.alias_mirror import AliasMirror
from service.rollouts.desk import Desk
from service.rollouts.guard_watch import GuardWatch
from service.rollouts.history import History
from service.rollouts.model_registry import ModelRegistry
from service.rollouts.reader import RolloutReader
from service.rollouts.reading import Job
from service.settings import ServiceSettings


class RolloutParts:
    """What a sidecar has of rollouts."""

    def __init__(
        self,
        settings: ServiceSettings,
        progress: ProgressReader,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Put them together; nothing runs yet.

        Args:
            settings: what to watch.
            progress: of the job.
            clock: seconds since 1970-01-01 UTC.
        """
        self.settings, self.progress = settings, progress
        self.registry = ModelRegistry(settings.mlflow_tracking_uri)
        self.reader = RolloutReader(settings, lambda: Job(progress.groups).set_aside)
        self.desk = Desk(settings, clock, self.job, self.registry)
        self.guards = GuardWatch(self._known, self._complete, self.desk)
        self.mirror = AliasMirror(lambda: self.reader.history, self.registry.point)

    def job(self) -> Job:
        """What the job's newest progress says; asked of the broker while it has not been read to its end."""
        complete = self._complete()
        return Job(complete) if complete else reading.job(self.settings)

    def findings(self) -> Iterator[tuple[str, str, str, str]]:
        """What the guards said of the last rollout watched: rollout_id, challenger, guard and verdict."""
        if (seen := self.guards.last) is None:
            return
        for challenger, verdict in seen.assessment.verdicts.items():
            for finding in verdict.findings:
                yield seen.assessment.rollout_id, challenger, finding.guard, finding.outcome.value

    def _complete(self) -> Mapping[int, Mapping[str, Any]]:
        """Newest progress records; nothing while they are not known to be the newest of all groups."""
        return self.progress.groups if self.progress.waiting_for is None else {}

    def _known(self) -> History:
        """The history; an empty one while the topic has not been read to its end."""
        return self.reader.history if self.reader.waiting_for is None else History()

    def start(self) -> None:
        """Let the threads run."""
        self.reader.start()
        self.guards.start()
        if self.registry.is_set:
            self.mirror.start()

    def stop(self) -> None:
        """End the threads."""
        if self.registry.is_set:
            self.mirror.stop()
        self.guards.stop()
        self.reader.stop()
