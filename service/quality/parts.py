"""The live precision of one sidecar: threads that read alerts and labels, and their counts."""

from pathlib import Path

from service.quality import counts
from service.quality.alert_feed import AlertFeed
from service.quality.counts import Quality
from service.quality.outcomes import Outcomes
from service.quality.readers import AlertReader, LabelReader
from service.settings import ServiceSettings
from streaming_job.contracts import Contract


class QualityParts:
    """Threads and counts of the live precision, and the feed of alerts."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Create the threads without starting them.

        Args:
            settings: brokers, topics and work directory.
        """
        self._outcomes, topics = Outcomes(_file(settings)), settings.topics
        self.alerts = AlertFeed(settings)
        self._readers = (
            AlertReader(settings, self._outcomes),
            LabelReader(settings, topics.labels, Contract.LABEL, self._outcomes),
            LabelReader(settings, topics.chargebacks, Contract.CHARGEBACK, self._outcomes),
        )

    @property
    def waiting_for(self) -> str | None:
        """Why alerts or labels may be missing; None if none are missing."""
        return next((reader.waiting_for for reader in self._readers if reader.waiting_for), None)

    def qualities(self) -> list[Quality]:
        """Return the outcomes of each rule, model version and rollout; see `counts.qualities`."""
        return counts.qualities(self._outcomes.counts())

    def by_day(self) -> list[Quality]:
        """Return the outcomes of each rule, model version and rollout on each day; see `counts.by_day`."""
        return counts.by_day(self._outcomes.counts())

    def start(self) -> None:
        """Start the threads."""
        for thread in (self.alerts, *self._readers):
            thread.start()

    def stop(self) -> None:
        """Stop the threads."""
        for thread in (self.alerts, *self._readers):
            thread.stop()
        self._outcomes.close()


def _file(settings: ServiceSettings) -> Path | None:
    """Return the file of the counts; None for a temporary one."""
    if settings.work_dir is None:
        return None
    return settings.work_dir / "sidecar" / settings.job_id / "outcomes.sqlite"
