"""A thread that reads alerts and labels into the store of the live precision."""

import logging
from collections.abc import Sequence

from confluent_kafka import Message, TopicCollection, TopicPartition

from service.labels.errors import UnreadError
from service.labels.records import Alert, Decoder, Label
from service.quality.outcomes import Outcomes
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.log import clients, topic_reader
from streaming_job.log.clients import Consumer

log = logging.getLogger(__name__)
FETCH_WAIT_MS = 500
"""How long the broker waits for a record before it answers that there is none."""


class OutcomeReader(TopicFollower):
    """Follows alerts and labels from the offsets in the store on; at first from the topics' beginning."""

    def __init__(self, settings: ServiceSettings, outcomes: Outcomes) -> None:
        self._alerts, self._decoder = settings.topics.fraud_alerts, Decoder(settings.topics)
        topics = self._alerts, *self._decoder.labels
        super().__init__(settings, topics, "alerts and labels", FETCH_WAIT_MS)
        self._outcomes = outcomes

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        topic_reader.require(reader, self._topics, UnreadError)
        admin = clients.admin(self._settings)  # a client without a name would end before it has the answer
        described = admin.describe_topics(
            TopicCollection(list(self._topics)), request_timeout=topic_reader.TIMEOUT_S
        )
        topic_ids = {topic: str(described[topic].result().topic_id) for topic in self._topics}
        offsets = self._outcomes.resume(topic_ids, self._alerts)
        starts = []
        for topic in self._topics:
            for partition, (first, end) in topic_reader.bounds(reader, topic).items():
                start = offsets.get((topic, partition), first)
                if start < first:
                    log.warning(
                        "%s-%s: retention deleted offsets %s to %s before the sidecar read them; the live "
                        "precision lacks these records", topic, partition, start, first - 1,
                    )  # fmt: skip
                # a log that lost its end is read again: records already counted change nothing
                starts.append(TopicPartition(topic, partition, start if first <= start <= end else first))
        return starts

    def _take(self, records: Sequence[Message]) -> None:
        decoded = [self._decoder.read(record) for record in records]
        offsets = {
            (record.topic() or "", record.partition() or 0): (record.offset() or 0) + 1 for record in records
        }
        self._outcomes.take([item for item in decoded if isinstance(item, Alert | Label)], offsets)
