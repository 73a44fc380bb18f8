"""The job's newest alerts, for the status page."""

from collections import deque
from collections.abc import Mapping, Sequence

from confluent_kafka import Message, TopicPartition

from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.log.clients import Consumer

SHOWN = 50
"""Alerts kept of each partition, so the newest SHOWN of all partitions are among them."""
FETCH_WAIT_MS = 200
"""How long the broker waits for an alert before it answers that there is none."""


class AlertFeed(TopicFollower):
    """Follows the topic of alerts, from the newest ones on."""

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(settings, (settings.topics.fraud_alerts,), "alerts", FETCH_WAIT_MS)
        self._shown: Mapping[int, deque[tuple[int, bytes]]] = {}  # never resized: read without a lock
        """Partition -> its newest alerts, each as (Kafka timestamp in ms, value)."""

    def newest(self, limit: int) -> list[bytes]:
        """Return the values of the newest alerts by Kafka timestamp, newest first; SHOWN at most."""
        # list(deque) is one step of the interpreter: nothing is appended meanwhile
        alerts = [
            (timestamp, partition, position, value)
            for partition, newest in self._shown.items()
            for position, (timestamp, value) in enumerate(list(newest))
        ]
        alerts.sort(key=lambda alert: alert[:3], reverse=True)
        return [value for *_, value in alerts[: min(limit, SHOWN)]]

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        self._shown = {}  # the records kept so far are read again
        return self._newest_records(reader, SHOWN)

    def _take(self, records: Sequence[Message]) -> None:
        for record in records:
            partition = record.partition() or 0
            if partition not in self._shown:
                self._shown = {**self._shown, partition: deque(maxlen=SHOWN)}
            self._shown[partition].append((record.timestamp()[1], record.value() or b""))
