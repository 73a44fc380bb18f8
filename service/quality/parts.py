"""The live precision of one sidecar: its threads, and what they have found."""

from service.quality.alert_feed import AlertFeed
from service.quality.label_reader import LabelReader
from service.quality.outcomes import Outcomes, Quality
from service.settings import ServiceSettings
from streaming_job.contracts import Contract


class QualityParts:
    """What a sidecar has of live precision."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Put it together; nothing runs yet.

        Args:
            settings: where the topics are.
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
        """Why something may be missing; None if nothing is."""
        return next((reader.waiting_for for reader in self._readers if reader.waiting_for), None)

    def found(self) -> list[Quality]:
        """See `Outcomes.found`."""
        return self._outcomes.found()

    def start(self) -> None:
        """Let the threads run."""
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """End the threads."""
        for reader in self._readers:
            reader.stop()
