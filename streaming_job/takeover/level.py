"""The level up to which a running predecessor has decided, from its progress records. Pure.

A successor that warms up may decide a transaction only once it has folded the tables at least as far as the
predecessor had when it decided that transaction; and it must not fold them further than every key group of
the predecessor has reported. So a level consists of one position in the tables, that of the slowest group,
and for each group of the newest transactions that it had decided at or before that position.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.progress.last_record import Record


class Level:
    """The newest level, from the records added so far."""

    def __init__(self, transactions_topic: str, rollouts_topic: str, retired: Collection[str] = ()) -> None:
        self._topic, self._rollouts, self._retired = transactions_topic, (rollouts_topic, 0), retired
        self._records: dict[int, deque[Record]] = {}
        """Records that a level may still need, by key group, oldest first."""
        self._groups = 0
        self._offsets: Offsets = {}

    def add(self, record: Record) -> None:
        """Add a progress record of the predecessor; older ones than the group's newest are ignored."""
        group = self._records.setdefault(record["key_group"], deque())
        if not group or group[-1]["commit_id"] < record["commit_id"]:
            group.append(record)
            self._groups = record["key_groups"]

    @property
    def set_aside(self) -> Mapping[int, str]:
        """Proposals that group 0 of the predecessor has set aside, offset -> reason.

        Empty if the predecessor reads another rollout topic, whose offsets mean nothing here.
        """
        group = self._records.get(0)
        if not group or self._rollouts not in last_record.positions(group[-1]):
            return {}
        return last_record.set_aside(group[-1])

    def offsets(self) -> Offsets:
        """Return the level: offsets of the transactions and of the tables; empty until each group is known.

        A later level is never behind an earlier one.
        """
        if not self._groups or len(self._records) < self._groups:
            return {}
        newest = [self._tables(group[-1]) for group in self._records.values()]
        tables = {tp: min(table[tp] for table in newest) for tp in set.intersection(*map(set, newest))}
        self._raise_to(tables)
        ends = last_record.positions(self._records[0][-1])  # no decision depends on a retired topic
        self._raise_to({tp: end for tp, end in ends.items() if tp[0] in self._retired})
        for group in self._records.values():
            while len(group) > 1 and self._fits(group[1], tables):
                group.popleft()
            if self._fits(group[0], tables):
                ends = last_record.positions(group[0])
                self._raise_to({tp: end for tp, end in ends.items() if tp[0] == self._topic})
        return dict(self._offsets)

    def _raise_to(self, offsets: Offsets) -> None:
        self._offsets |= {tp: max(offset, self._offsets.get(tp, 0)) for tp, offset in offsets.items()}

    def _tables(self, record: Record) -> Offsets:
        ends = last_record.positions(record).items()
        return {tp: end for tp, end in ends if tp[0] not in (self._topic, *self._retired)}

    def _fits(self, record: Record, tables: Offsets) -> bool:
        """Return whether the tables are far enough for all that the record's group had decided."""
        needs = (self._tables(record), *last_record.by_home(record).values())
        # of a partition that a table has got lately, some groups may have reported nothing yet
        topics = {topic for topic, _ in tables}
        return all(end <= tables.get(tp, 0) for need in needs for tp, end in need.items() if tp[0] in topics)


def behind(level: Offsets, positions: Mapping[Any, int]) -> int:
    """Return the number of offsets by which positions are behind a level, in all partitions of the level."""
    return sum(max(0, offset - positions.get(tp, 0)) for tp, offset in level.items())
