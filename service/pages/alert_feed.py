"""Follows the newest alerts, from the end of their topic."""

from collections import deque
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from service.settings import ServiceSettings
from service.topic_follower import TopicFollower

MOST = 50
"""Alerts kept of each partition, so the newest MOST of all are among them."""
BACK = 4 * MOST
"""Offsets before a partition's end that a start reads again: transactions have marks there, too."""
FETCH_WAIT_MS = "200"
"""How long the broker waits for an alert before it answers that there is none."""


class AlertFeed(TopicFollower):
    """The newest alerts of the job.

    Records are kept as they are: what is not asked for is not decoded.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        """Read nothing yet."""
        topic = settings.topics.fraud_alerts
        super().__init__(settings, topic, "alerts", {"fetch.wait.max.ms": FETCH_WAIT_MS})
        self._kept: Mapping[int, deque[tuple[int, bytes]]] = {}
        """Partition -> (Kafka timestamp, value)."""

    def newest(self, limit: int) -> list[bytes]:
        """Values of the newest alerts by Kafka timestamp, newest first; MOST at most."""
        # list(deque) is one step of the interpreter: nothing is appended meanwhile
        found = [
            (at, partition, place, value)
            for partition, kept in self._kept.items()
            for place, (at, value) in enumerate(list(kept))
        ]
        found.sort(key=lambda one: one[:3], reverse=True)
        return [value for *_, value in found[: min(limit, MOST)]]

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        places = self._before_the_end(reader, BACK)
        # from here on what was kept would be read twice
        self._kept = {place.partition: deque(maxlen=MOST) for place in places}
        return places

    def _take(self, records: Sequence[Message]) -> None:
        for one in records:
            self._kept[one.partition() or 0].append((one.timestamp()[1], one.value() or b""))
