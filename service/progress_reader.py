"""Follows the newest progress record of each key group, which tells the group's totals.

The topic is read from its end: a start looks for one record of each group.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.progress.reader import newest_among, newest_by_group
from streaming_job.progress.totals import Totals


class ProgressReader(TopicFollower):
    """Progress of one job, by key group, kept up to date."""

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(settings, settings.topics.job_progress, "progress records")
        self._groups: dict[int, Mapping[str, Any]] = {}  # replaced, never altered: read without a lock
        self._unreadable = 0

    @property
    def groups(self) -> Mapping[int, Mapping[str, Any]]:
        """Key group -> its newest progress record; those that have written none are not there."""
        return self._groups

    @property
    def totals(self) -> Totals:
        """Sums over all key groups, from the first transaction of each on."""
        return Totals.of_groups(Totals.from_json(record["totals"]) for record in self._groups.values())

    @property
    def unreadable(self) -> int:
        """Records of the job, met since the start, that were no progress."""
        return self._unreadable

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        places = self._newest_records(reader, 0)
        # what comes between the two is read twice and counts once
        self._keep(newest_by_group(reader, self._topic, self._settings.job_id))
        return places

    def _take(self, records: Sequence[Message]) -> None:
        found, unreadable = newest_among(records, self._settings.job_id)
        self._unreadable += unreadable
        self._keep(found)

    def _keep(self, found: Mapping[int, Mapping[str, Any]]) -> None:
        newer = {group: record for group, record in found.items() if self._is_newer(group, record)}
        if newer:
            self._groups = {**self._groups, **newer}

    def _is_newer(self, group: int, record: Mapping[str, Any]) -> bool:
        """Commit ids only grow, unless totals had to begin anew: what is older was read again."""
        known = self._groups.get(group)
        return (
            known is None
            or record["commit_id"] > known["commit_id"]
            or record["totals"]["since"] != known["totals"]["since"]
        )
