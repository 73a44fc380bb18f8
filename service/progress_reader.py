"""A thread that follows the newest progress record of each key group, which has the group's totals.

At the start, one search finds each group's newest record; new records are then read from the topic's end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message, TopicPartition

from service.health.groups import Groups, key_groups
from service.settings import ServiceSettings
from service.topic_follower import TopicFollower
from streaming_job.log.clients import Consumer
from streaming_job.progress.reader import newest_among, newest_by_group, of_newest_query, with_feature_counts
from streaming_job.progress.totals import Totals


class ProgressReader(TopicFollower):
    """Progress of one job, by key group, kept up to date."""

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(settings, (settings.topics.job_progress,), "progress records")
        self.groups: Groups = {}
        """Key group -> its newest progress record; groups that have written none are absent.

        Replaced, never mutated: read without a lock.
        """
        self._newest: dict[int, Mapping[str, Any]] = {}
        """As `groups`, but also of groups that have not written since a takeover."""
        self.unreadable = 0
        """Number of invalid records of the job since the sidecar started."""

    @property
    def totals(self) -> Totals:
        """Totals summed over all key groups, since the first Kafka transaction of each."""
        return Totals.of_groups(Totals.from_json(record["totals"]) for record in self.groups.values())

    def _begin(self, reader: Consumer) -> Sequence[TopicPartition]:
        starts = self._newest_records(reader, 0)
        # records written between the two calls are read twice, which changes nothing
        newest = newest_by_group(reader, self._settings.topics.job_progress, self._settings.job_id)
        self._newest = {}  # of a topic that was created again
        if not newest:
            self.groups = {}
        self._keep(newest)
        return starts

    def _take(self, records: Sequence[Message]) -> None:
        by_group, unreadable = newest_among(records, self._settings.job_id)
        self.unreadable += unreadable
        self._keep(by_group)

    def _keep(self, by_group: Mapping[int, dict[str, Any]]) -> None:
        newer = {
            group: with_feature_counts(record, self._newest.get(group))
            for group, record in by_group.items()
            if self._is_newer(group, record)
        }
        if newer:
            self._newest |= newer
            groups = of_newest_query(self._newest)
            if not _is_part_of_a_seam(groups):
                self.groups = groups

    def _is_newer(self, group: int, record: Mapping[str, Any]) -> bool:
        """Return whether a record is newer than the group's current one.

        Commit ids only grow, until the job begins anew with totals from zero, whose `since` differs.
        """
        current = self._newest.get(group)
        return (
            current is None
            or record["commit_id"] > current["commit_id"]
            or record["totals"]["since"] != current["totals"]["since"]
        )


def _is_part_of_a_seam(groups: Groups) -> bool:
    """Return whether the first records of a successor have been read only in part.

    They are written together, but to several partitions. The counts of a part would look as if the job had
    lost the others: Prometheus would take the rest for growth, and guards could find too few.
    """
    are_first = all(
        record.get("takeover", {}).get("commit_id") == record["commit_id"] for record in groups.values()
    )
    return are_first and 0 < len(groups) < key_groups(groups)
