"""Settled points: how far a running job can be audited, from its progress records and their age."""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from loadtests.audit.commits import is_seam
from loadtests.audit.content import content_of
from loadtests.audit.moves import Seams
from loadtests.oracle import Record
from streaming_job.contracts.topics import Topics
from streaming_job.log.records import PartitionId

MOST_POINTS = 4_096
"""Maximum number of points that are kept; beyond it every second point is dropped."""


class Point(NamedTuple):
    """The job's progress at a moment."""

    seen_s: float
    """Time of this moment, seconds since 1970-01-01 UTC."""
    transactions: dict[PartitionId, int]
    """First uncommitted offset of each partition."""
    furthest: dict[PartitionId, int]
    """Offsets up to which the furthest key group had read the tables."""
    slowest: dict[PartitionId, int]
    """Offsets up to which the slowest key group had read the tables."""


class SettledPoints:
    """The points of a job's progress; a point is settled once it is old and all groups have reached it.

    Point p is settled when, at the newest point that is at least `behind_s` old, every key group has read
    the tables at least as far as the furthest group had at p. Then all dead letters of table records up to p
    are written, and no group can still refuse a rollout event up to p that another group has applied.
    The minimal age is needed because a Kafka transaction becomes visible in one partition after another: a
    progress record may be visible before the alerts of its commit.

    Args:
        behind_s: minimal age of a settled point, seconds.
    """

    def __init__(self, topics: Topics, job_id: str, behind_s: float) -> None:
        self._transactions, self._job_id, self.behind_s = topics.transactions, job_id.encode(), behind_s
        self._ends: dict[PartitionId, int] = {}
        self._tables: dict[PartitionId, dict[int, int]] = defaultdict(dict)
        self.seams = Seams()
        """Of the records so far; those of a takeover after a point begin beyond it."""
        self._taken_over = 0
        """Number of the newest takeover: records before it are the predecessor's."""
        self._points: list[Point] = []

    def add(self, record: Record) -> None:
        """Add a record of job-progress, those of each key group in their order.

        Malformed records, those of other jobs, and those of a predecessor after the takeover are ignored.
        """
        if record.key != self._job_id:
            return
        try:
            row = content_of(record.value)
            group, key_groups, commit_id = (
                int(row["key_group"]),
                int(row["key_groups"]),
                int(row["commit_id"]),
            )
            ends = {(str(p["topic"]), int(p["partition"])): int(p["end_offset"]) for p in row["partitions"]}
            self.seams.add(row)
        except (ValueError, KeyError, TypeError):
            return
        if commit_id < self._taken_over:
            return
        if is_seam(row) and commit_id > self._taken_over:
            self._taken_over = commit_id
            for partition in self._tables.keys() - ends.keys():  # of rollouts that decide no more
                furthest = max(self._tables[partition].values())
                self._tables[partition] = dict.fromkeys(self._tables[partition], furthest)
        for partition, end in ends.items():
            if partition[0] == self._transactions:
                self._ends[partition] = max(end, self._ends.get(partition, 0))
                continue
            groups = self._tables[partition]
            if len(groups) != key_groups:  # positions of other groups no longer count
                groups = self._tables[partition] = dict.fromkeys(range(key_groups), 0)
            groups[group] = max(end, groups[group])

    def mark(self, now_s: float) -> None:
        """Record a point of the progress so far."""
        if not self._ends:
            return
        self._points.append(Point(now_s, dict(self._ends), *table_ends(self._tables)))
        if len(self._points) > MOST_POINTS:
            del self._points[::2]

    def settled(self, now_s: float) -> Point | None:
        """Return the newest settled point, or None; earlier points are dropped."""
        old = [point for point in self._points if point.seen_s <= now_s - self.behind_s]
        for number in reversed(range(len(old))):
            if reaches(old[-1].slowest, old[number].furthest):
                del self._points[:number]
                return old[number]
        return None


def table_ends(
    read: Mapping[PartitionId, Mapping[int, int]],
) -> tuple[dict[PartitionId, int], dict[PartitionId, int]]:
    """Return the offsets up to which the furthest and the slowest key group have read the tables.

    Args:
        read: those of each partition by key group, with an entry for each group.
    """
    furthest, slowest = (
        {partition: which(groups.values()) for partition, groups in read.items()} for which in (max, min)
    )
    return furthest, slowest


def reaches(slowest: Mapping[PartitionId, int], furthest: Mapping[PartitionId, int]) -> bool:
    """Return whether `slowest` is at or beyond `furthest` in every partition of `furthest`."""
    return all(slowest.get(partition, 0) >= end for partition, end in furthest.items())
