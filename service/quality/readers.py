"""Threads that read alerts and labels for the live precision."""

import logging
from collections.abc import Sequence

import orjson
from confluent_kafka import Consumer, Message, TopicPartition

from service.quality.outcomes import MOST_ALERTS, MOST_LABELS, Outcomes
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.contracts import Contract
from streaming_job.decode import labels
from streaming_job.decode.strict import Rejected
from streaming_job.log import topic_reader

log = logging.getLogger(__name__)
PER_RECORD = 2
"""Offsets for each record that is wanted: transactions have marks there, too."""
FETCH_WAIT_MS = "500"
"""How long the broker waits for a record before it answers that there is none."""


class _Reader(TopicFollower):
    """Reads the newest records of a topic, and what comes then."""

    def __init__(self, settings: ServiceSettings, topic: str, what: str, most: int) -> None:
        super().__init__(settings, topic, what, {"fetch.wait.max.ms": FETCH_WAIT_MS})
        self._most = most

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        # of each partition its part: a start is not to read many times what is kept
        partitions = len(topic_reader.partitions(reader, self._topic))
        return self._before_the_end(reader, PER_RECORD * self._most // max(partitions, 1))


class AlertReader(_Reader):
    """Reads the job's alerts."""

    def __init__(self, settings: ServiceSettings, outcomes: Outcomes) -> None:
        """Read nothing yet."""
        super().__init__(settings, settings.topics.fraud_alerts, "alerts", MOST_ALERTS)
        self._outcomes = outcomes

    def _take(self, records: Sequence[Message]) -> None:
        for one in records:
            try:
                self._outcomes.alert(orjson.loads(one.value() or b""))
            except (KeyError, TypeError, ValueError) as fault:
                log.warning("%s-%s at %s is no alert: %s", one.topic(), one.partition(), one.offset(), fault)


class LabelReader(_Reader):
    """Reads the labels of a topic; what the job would refuse says nothing here, too."""

    def __init__(self, settings: ServiceSettings, topic: str, contract: Contract, outcomes: Outcomes) -> None:
        """Read nothing yet.

        Args:
            settings: where.
            topic: of labels.
            contract: of its records, LABEL or CHARGEBACK.
            outcomes: takes them.
        """
        super().__init__(settings, topic, topic, MOST_LABELS)
        self._contract, self._outcomes = contract, outcomes

    def _take(self, records: Sequence[Message]) -> None:
        for one in records:
            try:
                card_id, transaction_id, fraud = labels.read(one.key(), one.value(), self._contract)
            except Rejected:
                continue  # a dead letter of the job
            if fraud is not None:
                self._outcomes.label(card_id, transaction_id, one.timestamp()[1], fraud)
