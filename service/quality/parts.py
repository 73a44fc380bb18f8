"""The live precision of one sidecar: threads that read alerts and labels, and their counts."""

from service.quality.alert_feed import AlertFeed
from service.quality.label_reader import LabelReader
from service.quality.outcomes import Outcomes, Quality
from service.settings import ServiceSettings
from streaming_job.contracts import Contract


class QualityParts:
    """Threads and counts of the live precision."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Create the threads without starting them.

        Args:
            settings: brokers and topics.
        """
        self._outcomes, topics = Outcomes(), settings.topics
        self.alerts = AlertFeed(settings, self._outcomes)
        self._readers = (
            self.alerts,
            LabelReader(settings, topics.labels, Contract.LABEL, self._outcomes),
            LabelReader(settings, topics.chargebacks, Contract.CHARGEBACK, self._outcomes),
        )

    @property
    def waiting_for(self) -> str | None:
        """Why alerts or labels may be missing; None if none are missing."""
        return next((reader.waiting_for for reader in self._readers if reader.waiting_for), None)

    def qualities(self) -> list[Quality]:
        """Return the outcomes of each rule, model version and rollout, see `Outcomes.qualities`."""
        return self._outcomes.qualities()

    def start(self) -> None:
        """Start the threads."""
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Stop the threads."""
        for reader in self._readers:
            reader.stop()
