"""Threads that read alerts and labels into the store of the live precision."""

import logging
from collections.abc import Sequence

import orjson
from confluent_kafka import Message, TopicCollection, TopicPartition

from service.quality.counts import Alert, Label, alert_of
from service.quality.outcomes import Outcomes, Read
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.contracts import Contract
from streaming_job.decode import labels
from streaming_job.decode.strict import Rejected
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Consumer

log = logging.getLogger(__name__)
FETCH_WAIT_MS = 500
"""How long the broker waits for a record before it answers that there is none."""


class Reader(TopicFollower):
    """Follows a topic from the offsets in the store on; at first from the topic's beginning."""

    of_alerts = False

    def __init__(self, settings: ServiceSettings, topic: str, what: str, outcomes: Outcomes) -> None:
        """Read nothing yet.

        Args:
            settings: brokers and topics.
            topic: topic to read.
            what: a plural noun for the records.
            outcomes: counts the records.
        """
        super().__init__(settings, topic, what, FETCH_WAIT_MS)
        self._outcomes = outcomes
        self._read = Read(topic, "", 0, {})

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        admin = clients.admin(self._settings)
        described = admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=topic_reader.TIMEOUT_S
        )
        topic_id = str(described[self._topic].result().topic_id)
        generation, offsets = self._outcomes.resume(self._topic, topic_id, of_alerts=self.of_alerts)
        self._read = Read(self._topic, topic_id, generation, {})
        starts = []
        for partition, (first, end) in topic_reader.bounds(reader, self._topic).items():
            start = offsets.get(partition, first)
            if start < first:
                log.warning(
                    "%s-%s: retention deleted offsets %s to %s before the sidecar read them; the live "
                    "precision lacks these records", self._topic, partition, start, first - 1,
                )  # fmt: skip
            # a log that lost its end is read again: records that are already counted change nothing
            starts.append(TopicPartition(self._topic, partition, start if first <= start <= end else first))
        return starts

    def _take(self, records: Sequence[Message]) -> None:
        counted = [item for record in records if (item := self._counted(record)) is not None]
        offsets = {record.partition() or 0: (record.offset() or 0) + 1 for record in records}
        self._outcomes.take(counted, self._read._replace(offsets=offsets))

    def _counted(self, record: Message) -> Alert | Label | None:
        """Return what is counted of a record; None if it is not counted."""
        raise NotImplementedError


class AlertReader(Reader):
    """Reads the job's alerts."""

    of_alerts = True

    def __init__(self, settings: ServiceSettings, outcomes: Outcomes) -> None:
        """Read nothing yet.

        Args:
            settings: brokers and topics.
            outcomes: counts the alerts.
        """
        super().__init__(settings, settings.topics.fraud_alerts, "alerts to count", outcomes)

    def _counted(self, record: Message) -> Alert | None:
        try:
            return alert_of(orjson.loads(record.value() or b""))
        except (KeyError, TypeError, ValueError) as error:
            position = f"{record.topic()}-{record.partition()} at {record.offset()}"
            log.warning("%s is not an alert: %s", position, error)
            return None


class LabelReader(Reader):
    """Reads a topic of labels; skips labels that the job rejects, and those that say neither outcome."""

    def __init__(self, settings: ServiceSettings, topic: str, contract: Contract, outcomes: Outcomes) -> None:
        """Read nothing yet.

        Args:
            settings: brokers and topics.
            topic: of labels.
            contract: of its records, LABEL or CHARGEBACK.
            outcomes: counts alerts by their labels.
        """
        super().__init__(settings, topic, topic, outcomes)
        self._contract = contract

    def _counted(self, record: Message) -> Label | None:
        try:
            label = labels.read(record.key(), record.value(), self._contract)
        except Rejected:
            return None  # a dead letter of the job
        if label.fraud is None:
            return None
        number = int(self._contract == Contract.CHARGEBACK)
        position = record.timestamp()[1], number, record.offset() or 0
        return Label(label.card_id, label.transaction_id, position, label.fraud)
