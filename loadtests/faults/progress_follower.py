"""Reader of each key group's newest progress record; every call reads the records that are new."""

import json
from collections.abc import Collection
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from loadtests.faults.errors import FaultError
from streaming_job.log import clients, follow, topic_reader
from streaming_job.log.clients import Address
from streaming_job.log.records import PartitionId
from streaming_job.progress.last_record import positions
from streaming_job.progress.reader import of_newest_query
from streaming_job.settings import JobSettings


class ProgressFollower:
    """Follower of one job's progress topic; raises FaultError if the broker does not answer."""

    def __init__(self, bootstrap_servers: str, settings: JobSettings) -> None:
        self._servers, self._settings = bootstrap_servers, settings
        self._next: dict[int, int] = {}
        self._newest: dict[int, dict[str, Any]] = {}
        self._commits = 0

    def commits(self) -> int:
        """Return the number of the job's progress records so far."""
        self._read()
        return self._commits

    def tables_read(self, tables: Collection[str]) -> dict[PartitionId, int]:
        """Return (topic, partition) -> offset up to which all key groups have read one of these tables.

        Empty until each key group has committed.
        """
        self._read()
        newest = of_newest_query(self._newest)
        if not newest or len(newest) < max(record["key_groups"] for record in newest.values()):
            return {}
        ends = [positions(record) for record in newest.values()]
        partitions = {partition for end in ends for partition in end if partition[0] in tables}
        return {partition: min(end.get(partition, 0) for end in ends) for partition in partitions}

    def _read(self) -> None:
        """Read new records, with one consumer per call so that nothing is fetched between calls."""
        topic = self._settings.topics.job_progress
        try:
            with closing(clients.reader(Address(self._servers), "fraud-faults")) as reader:
                starts = [
                    TopicPartition(topic, part, self._next.get(part, OFFSET_BEGINNING))
                    for part in topic_reader.partitions(reader, topic)
                ]
                for message in follow.Follower(reader, starts).to_end():
                    self._next[message.partition() or 0] = (message.offset() or 0) + 1
                    if message.key() == self._settings.job_id.encode():
                        record = json.loads(message.value() or b"")
                        self._newest[record["key_group"]] = record
                        self._commits += 1
        except KafkaException as fault:
            raise FaultError(f"the job's progress cannot be read: {fault}; check the broker") from fault
