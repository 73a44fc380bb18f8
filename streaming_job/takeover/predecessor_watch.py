"""The follower of a predecessor's progress records, for a successor that warms up."""

import math

from confluent_kafka import TopicPartition

from streaming_job.log import clients, follow, topic_reader
from streaming_job.progress.reader import decoded, newest_by_group
from streaming_job.settings import JobSettings
from streaming_job.takeover.level import Level

BACK = 2_000
"""Offsets before the topic's ends at which the follower begins: a level may need older records, too."""


class PredecessorWatch:
    """A follower of the predecessor's progress records, which raise the level."""

    def __init__(self, settings: JobSettings) -> None:
        """Read the newest progress record of each group.

        Raises:
            KafkaException: no such topic, or the brokers do not answer.
        """
        topic, self._job_id = settings.topics.job_progress, settings.job_id
        self.level = Level(
            settings.topics.transactions, settings.topics.model_rollouts, settings.retired_transactions
        )
        self._reader = clients.reader(settings, f"{settings.job_id}-takeover")
        bounds = topic_reader.bounds(self._reader, topic)
        newest = newest_by_group(self._reader, topic, settings.job_id)
        self._query_id = next((record["query_id"] for record in newest.values()), None)
        back = math.ceil(BACK / len(bounds))
        starts = [
            TopicPartition(topic, part, max(first, end - back)) for part, (first, end) in bounds.items()
        ]
        ends = {(topic, part): end for part, (_, end) in bounds.items()}
        for message in follow.Follower(self._reader, starts, ends).to_end():
            self._add(decoded(message, self._job_id))
        for record in newest.values():
            self._add(record)
        self._follower = follow.Follower(
            self._reader, [TopicPartition(topic, part, end) for part, (_, end) in bounds.items()]
        )

    def look(self) -> None:
        """Add new records to the level.

        Raises:
            KafkaException: the topic is gone, or the client has failed for good.
        """
        for message in self._follower.poll(0.0):
            self._add(decoded(message, self._job_id))

    def close(self) -> None:
        """Close the client."""
        self._reader.close()

    def _add(self, record: dict[str, object] | None) -> None:
        if record is not None and record["query_id"] == self._query_id:
            self.level.add(record)
