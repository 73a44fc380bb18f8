"""A thread that follows the rollout topic, so that queries about rollouts need no broker."""

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Message, TopicPartition

from service.rollouts.history import History, Record
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.log import topic_reader
from streaming_job.log.clients import Consumer


class RolloutReader(TopicFollower):
    """Follower of the rollout topic that keeps the history up to date."""

    def __init__(self, settings: ServiceSettings, set_aside: Callable[[], Mapping[int, str]]) -> None:
        """Prepare the thread without connecting.

        Args:
            set_aside: returns the records that the job does not use: offset -> a value of `contracts.Reason`.
        """
        super().__init__(settings, (settings.topics.model_rollouts,), "rollouts")
        self._set_aside = set_aside
        self._history = History()  # replaced, never mutated: read without a lock
        self._last_set_aside: dict[int, str] = {}

    @property
    def history(self) -> History:
        """The topic as far as it has been read."""
        return self._history

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        (topic,) = self._topics
        topic_reader.partitions(reader, topic)
        return [TopicPartition(topic, 0, self._history.end)]

    def _take(self, records: Sequence[Message]) -> None:
        set_aside = dict(self._set_aside())
        if set_aside != self._last_set_aside:
            self._history, self._last_set_aside = self._history.refolded(set_aside), set_aside
        if records:
            new = [
                Record(message.offset() or 0, message.timestamp()[1], message.value() or b"")
                for message in records
                if not message.partition()  # the only one that has events (`RolloutWriter`)
            ]
            self._history = self._history.with_records(new, set_aside)
