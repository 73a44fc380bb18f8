"""Follows the newest alerts, from the end of their topic."""

from collections import deque
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.background import Background
from service.settings import ServiceSettings, say
from streaming_job.log import topic_reader

MOST = 50
"""Alerts kept of each partition, so the newest MOST of all are among them."""
BACK = 4 * MOST
"""Offsets before a partition's end that a start reads again: transactions have marks there, too."""
POLL_S = 0.2
RETRY_S = 2.0
AT_ONCE = 1_000
FETCH_WAIT_MS = "200"
"""How long the broker waits for an alert before it answers that there is none."""


class AlertFeed(Background):
    """The newest alerts of the job; while the broker is away they stay.

    Records are kept as they are: what nobody looks at is not decoded.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        """Read nothing yet."""
        super().__init__("alert-feed")
        self._settings = settings
        self._kept: Mapping[int, deque[tuple[int, bytes]]] = {}
        """Partition -> (Kafka timestamp, value)."""
        self._fault: str | None = "alerts have not been read yet"

    @property
    def waiting_for(self) -> str | None:
        """Why alerts may be missing; None while the topic is followed."""
        if self.has_died:
            return "the thread that reads alerts has died; restart the sidecar"
        return self._fault

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

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except KafkaException as error:
                self._fault = self._words(error)
                self._stop.wait(RETRY_S)

    def _words(self, error: KafkaException) -> str:
        topic = self._settings.topics.fraud_alerts
        if error.args and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return f"topic {topic} does not exist"
        return f"alerts cannot be read: {say(error)}"

    def _follow(self) -> None:
        settings = self._settings
        topic = settings.topics.fraud_alerts
        kafka = {"fetch.wait.max.ms": FETCH_WAIT_MS, **settings.kafka}
        reader = topic_reader.consumer(settings.bootstrap_servers, kafka, f"{settings.job_id}-sidecar")
        try:
            places = []
            for partition in topic_reader.partitions(reader, topic):
                first, end = topic_reader.offsets(reader, TopicPartition(topic, partition))
                places.append(TopicPartition(topic, partition, max(first, end - BACK)))
            # from here on what was kept would be read twice
            self._kept = {place.partition: deque(maxlen=MOST) for place in places}
            reader.assign(places)
            self._fault = None
            while not self._stop.is_set():
                self._take_all(reader)
        finally:
            reader.close()

    def _take_all(self, reader: Consumer) -> None:
        for message in reader.consume(AT_ONCE, POLL_S):
            error = message.error()
            if error is None:
                kept = self._kept[message.partition() or 0]
                kept.append((message.timestamp()[1], message.value() or b""))
            elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
