"""The live precision of one sidecar: the thread that reads alerts and labels, and its counts."""

from pathlib import Path

from service.quality import counts
from service.quality.alert_feed import AlertFeed
from service.quality.counts import Quality
from service.quality.outcomes import Outcomes
from service.quality.reader import OutcomeReader
from service.settings import ServiceSettings


class QualityParts:
    """Threads and counts of the live precision, and the feed of alerts."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Create the threads without starting them."""
        self._outcomes = Outcomes(_file(settings))
        self.alerts = AlertFeed(settings)
        self._reader = OutcomeReader(settings, self._outcomes)

    @property
    def waiting_for(self) -> str | None:
        """Why alerts or labels may be missing; None if none are missing."""
        return self._reader.missing

    def qualities(self) -> list[Quality]:
        """Return the outcomes of each rule, model version and rollout; see `counts.qualities`."""
        return counts.qualities(self._outcomes.counts())

    def by_day(self) -> list[Quality]:
        """Return the outcomes of each rule, model version and rollout on each day; see `counts.by_day`."""
        return counts.by_day(self._outcomes.counts())

    def start(self) -> None:
        """Start the threads."""
        self.alerts.start()
        self._reader.start()

    def stop(self) -> None:
        """Stop the threads."""
        self.alerts.stop()
        self._reader.stop()
        self._outcomes.close()


def _file(settings: ServiceSettings) -> Path | None:
    """Return the file of the counts; None for a temporary one."""
    if settings.work_dir is None:
        return None
    return settings.work_dir / "sidecar" / settings.job_id / "outcomes.sqlite"
