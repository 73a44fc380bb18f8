"""How far a job that runs can be audited: from its progress records, with some time between."""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from loadtests.audit.commits import Place
from loadtests.oracle import Record
from streaming_job.contracts.topics import Topics

MOST_POINTS = 4_096
"""Kept at once; beyond that every second one goes."""


class Point(NamedTuple):
    """What progress had said by a moment."""

    seen_s: float
    """When it was read, seconds since 1970-01-01 UTC."""
    transactions: dict[Place, int]
    """First offset of each partition that was not committed."""
    furthest: dict[Place, int]
    """How far the key group that is ahead had read each partition of the tables."""
    slowest: dict[Place, int]
    """How far all key groups had."""


class SettledPoints:
    """Points of a job's progress, of which those that are old enough are settled.

    A point is settled when, as a later one of enough age says, every key group has read the tables as far as
    any had at the point: then each dead letter of the tables' records is on the log, and no group can still
    refuse a rollout that others have taken over. The age is for the brokers, which show the parts of a
    transaction one after another.

    Args:
        topics: names of the topics.
        job_id: whose progress it is.
        behind_s: age of what is audited.
    """

    def __init__(self, topics: Topics, job_id: str, behind_s: float) -> None:
        self._transactions, self._job_id, self.behind_s = topics.transactions, job_id.encode(), behind_s
        self._ends: dict[Place, int] = {}
        self._tables: dict[Place, dict[int, int]] = defaultdict(dict)
        self._key_groups = 1
        self._points: list[Point] = []

    def add(self, record: Record) -> None:
        """Take in a record of job-progress; what is none, or of another job, is left alone."""
        if record.key != self._job_id:
            return
        try:
            told = json.loads(record.value or b"")
            group, key_groups = int(told["key_group"]), int(told["key_groups"])
            ends = {(str(p["topic"]), int(p["partition"])): int(p["end_offset"]) for p in told["partitions"]}
        except (ValueError, KeyError, TypeError):
            return
        self._key_groups = key_groups
        for place, end in ends.items():
            if place[0] == self._transactions:
                self._ends[place] = max(end, self._ends.get(place, 0))
            else:
                groups = self._tables[place]
                groups[group] = max(end, groups.get(group, 0))

    def mark(self, now_s: float) -> None:
        """Make a point of what has been taken in so far."""
        if not self._ends:
            return
        furthest = {place: max(groups.values()) for place, groups in self._tables.items()}
        slowest = {
            place: min(groups.get(group, 0) for group in range(self._key_groups))
            for place, groups in self._tables.items()
        }
        self._points.append(Point(now_s, dict(self._ends), furthest, slowest))
        if len(self._points) > MOST_POINTS:
            del self._points[::2]

    def settled(self, now_s: float) -> Point | None:
        """The newest point that is settled; None before there is one. Those before it are forgotten."""
        old = [point for point in self._points if point.seen_s <= now_s - self.behind_s]
        for number in reversed(range(len(old))):
            if reaches(old[-1].slowest, old[number].furthest):
                del self._points[:number]
                return old[number]
        return None


def reaches(slowest: Mapping[Place, int], furthest: Mapping[Place, int]) -> bool:
    """Whether offsets are at or beyond others, in each partition that the others name."""
    return all(slowest.get(place, 0) >= end for place, end in furthest.items())
