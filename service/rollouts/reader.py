"""Follows the rollout topic, so that a question about rollouts asks no broker."""

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.background import Background
from service.rollouts.history import History, Record
from service.settings import ServiceSettings, say
from streaming_job.log import topic_reader

POLL_S = 0.2
RETRY_S = 1.0
AT_ONCE = 500


class RolloutReader(Background):
    """The history of rollouts, kept up to date; while the broker is away it stays as it was."""

    def __init__(self, settings: ServiceSettings, set_aside: Callable[[], Mapping[int, str]]) -> None:
        """Read nothing yet.

        Args:
            settings: where.
            set_aside: tells, by offset, the records that the job does not use, and why.
        """
        super().__init__("rollout-reader")
        self._settings, self._set_aside = settings, set_aside
        self._history = History()  # replaced, never altered: read without a lock
        self._known_aside: dict[int, str] = {}
        self._is_behind = True
        self._fault: str | None = "the rollout topic has not been read yet"

    @property
    def history(self) -> History:
        """The topic as far as it has been read."""
        return self._history

    @property
    def waiting_for(self) -> str | None:
        """Why the history may be old; None once the topic has been read to its end."""
        if self.has_died:
            return "the thread that reads rollouts has died; restart the sidecar"
        return self._fault or ("rollouts have not been read to their end yet" if self._is_behind else None)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except KafkaException as error:
                self._fault = f"the rollout topic cannot be read: {say(error)}"
                self._stop.wait(RETRY_S)

    def _follow(self) -> None:
        settings = self._settings
        topic = settings.topics.model_rollouts
        reader = topic_reader.consumer(
            settings.bootstrap_servers, settings.kafka, f"{settings.job_id}-sidecar"
        )
        try:
            topic_reader.partitions(reader, topic)
            reader.assign([TopicPartition(topic, 0, self._history.end)])
            self._fault = None
            while not self._stop.is_set():
                self._take_all(reader)
        finally:
            reader.close()

    def _take_all(self, reader: Consumer) -> None:
        records = []
        for message in reader.consume(AT_ONCE, POLL_S):
            error = message.error()
            if error is None:
                value = message.value() or b""
                records.append(Record(message.offset() or 0, message.timestamp()[1], value))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._is_behind = False
            elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
        aside = dict(self._set_aside())
        if aside != self._known_aside:
            self._history, self._known_aside = self._history.refolded(aside), aside
        if records:
            self._history = self._history.with_records(records, aside)
