"""A thread that reads labels for the live precision."""

from collections.abc import Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from service.quality.outcomes import MOST_LABELS, Outcomes
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.contracts import Contract
from streaming_job.decode import labels
from streaming_job.decode.strict import Rejected

FETCH_WAIT_MS = "500"
"""How long the broker waits for a label before it answers that there is none."""


class LabelReader(TopicFollower):
    """Follows a topic of labels, from the newest MOST_LABELS on; skips labels that the job rejects."""

    def __init__(self, settings: ServiceSettings, topic: str, contract: Contract, outcomes: Outcomes) -> None:
        """Read nothing yet.

        Args:
            settings: brokers and topics.
            topic: of labels.
            contract: of its records, LABEL or CHARGEBACK.
            outcomes: counts alerts by their labels.
        """
        super().__init__(settings, topic, topic, {"fetch.wait.max.ms": FETCH_WAIT_MS})
        self._contract, self._outcomes = contract, outcomes

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        return self._newest_records(reader, MOST_LABELS)

    def _take(self, records: Sequence[Message]) -> None:
        for record in records:
            try:
                label = labels.read(record.key(), record.value(), self._contract)
            except Rejected:
                continue  # a dead letter of the job
            if label.fraud is not None:
                position = record.timestamp()[1], record.topic() or "", record.offset() or 0
                self._outcomes.label(label.card_id, label.transaction_id, position, label.fraud)
