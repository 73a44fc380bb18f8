"""Follows the rollout topic, so that a question about rollouts asks no broker."""

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from service.rollouts.history import History, Record
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.log import topic_reader


class RolloutReader(TopicFollower):
    """The history of rollouts, kept up to date."""

    def __init__(self, settings: ServiceSettings, set_aside: Callable[[], Mapping[int, str]]) -> None:
        """Read nothing yet.

        Args:
            settings: where.
            set_aside: tells, by offset, the records that the job does not use, and why.
        """
        super().__init__(settings, settings.topics.model_rollouts, "rollouts")
        self._set_aside = set_aside
        self._history = History()  # replaced, never altered: read without a lock
        self._known_aside: dict[int, str] = {}

    @property
    def history(self) -> History:
        """The topic as far as it has been read."""
        return self._history

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        topic_reader.partitions(reader, self._topic)
        return [TopicPartition(self._topic, 0, self._history.end)]

    def _take(self, records: Sequence[Message]) -> None:
        aside = dict(self._set_aside())
        if aside != self._known_aside:
            self._history, self._known_aside = self._history.refolded(aside), aside
        if records:
            new = [Record(one.offset() or 0, one.timestamp()[1], one.value() or b"") for one in records]
            self._history = self._history.with_records(new, aside)
