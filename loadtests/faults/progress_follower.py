"""How far each key group has come, by its newest progress record; reads on whenever it is asked."""

import json
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from loadtests.faults.errors import FaultError
from streaming_job.log import topic_reader
from streaming_job.settings import JobSettings


class ProgressFollower:
    """The progress topic of one job, which has one partition.

    Args:
        bootstrap_servers: Kafka brokers.
        settings: of the job.
    """

    def __init__(self, bootstrap_servers: str, settings: JobSettings) -> None:
        self._servers, self._settings = bootstrap_servers, settings
        self._next = 0
        self._newest: dict[int, dict[str, Any]] = {}
        self._commits = 0

    def commits(self) -> int:
        """Progress records of the job so far.

        Raises:
            FaultError: no answer.
        """
        self._read()
        return self._commits

    def tables_read(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> offset up to which every key group has read a table.

        Raises:
            FaultError: no answer.
        """
        self._read()
        groups = range(self._settings.key_groups)
        if not self._newest.keys() >= set(groups):
            return {}
        ends = [
            {(part["topic"], part["partition"]): part["end_offset"] for part in newest["partitions"]}
            for newest in self._newest.values()
        ]
        places = {place for end in ends for place in end if place[0] in self._settings.tables}
        return {place: min(end.get(place, 0) for end in ends) for place in places}

    def _read(self) -> None:
        """Take in what has been written since; a client of its own, so that nothing is fetched meanwhile."""
        reader = topic_reader.consumer(self._servers, {}, "fraud-faults")
        try:
            place = TopicPartition(self._settings.topics.job_progress, 0, self._next)
            for message in topic_reader.to_end(reader, place):
                self._next = (message.offset() or 0) + 1
                if message.key() == self._settings.job_id.encode():
                    record = json.loads(message.value() or b"")
                    self._newest[record["key_group"]] = record
                    self._commits += 1
        except KafkaException as fault:
            raise FaultError(f"the job's progress cannot be read: {fault}; look at the broker") from fault
        finally:
            reader.close()
