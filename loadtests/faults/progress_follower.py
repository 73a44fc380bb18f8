"""Reader of each key group's newest progress record; every call reads the records that are new."""

import json
from collections.abc import Collection
from typing import Any

from loadtests.audit.topic_log import TopicLog
from streaming_job.log.records import PartitionId
from streaming_job.progress.last_record import positions
from streaming_job.progress.reader import of_newest_query
from streaming_job.settings import JobSettings


class ProgressFollower:
    """Follower of one job's progress topic; its methods raise the errors of `TopicLog`."""

    def __init__(self, log: TopicLog, settings: JobSettings) -> None:
        self._log, self._settings = log, settings
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
        for record in self._log.read(self._settings.topics.job_progress, starts=dict(self._next)):
            self._next[record.partition] = record.offset + 1
            if record.key == self._settings.job_id.encode():
                progress = json.loads(record.value or b"")
                self._newest[progress["key_group"]] = progress
                self._commits += 1
