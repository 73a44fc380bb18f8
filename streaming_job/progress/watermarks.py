"""Per-partition watermark estimates. Pure.

A partition's watermark is an estimate: 99 of 100 transactions with earlier event times have arrived. It is
the newest arrival less the 99th percentile of the lateness of the partition's recent transactions, and never
falls. No decision waits for it or depends on it; it shows a person up to what event time a view of the past
is complete.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from streaming_job.log.records import Arrived, Offsets, PartitionId
from streaming_job.progress.outcome import LATENESS_MS, PartitionTimes

SHARE = 0.99
RECENT = 10_000
"""If a lateness histogram holds more transactions than this, its counts are halved before more are added."""


class Partitions:
    """The field `partitions` of a group's progress records; each record continues the previous record."""

    def __init__(self, last: Iterable[Mapping[str, Any]] = ()) -> None:
        """Continue after a progress record.

        Args:
            last: `partitions` of that record; empty: there is none.
        """
        self._entries: dict[PartitionId, dict[str, Any]] = {
            (entry["topic"], entry["partition"]): dict(entry) for entry in last
        }

    def advance(
        self,
        starts: Offsets,
        ends: Offsets,
        transactions_topic: str,
        times: Mapping[int, PartitionTimes],
        newest: Mapping[PartitionId, Arrived],
        now: int,
    ) -> list[dict[str, Any]]:
        """Return the next record's `partitions`; valid until the next call.

        Args:
            starts: by partition: end offset of the previous Kafka transaction; without an entry it is 0.
            ends: by partition: the first offset not read; each of these partitions is in the result.
            transactions_topic: topic to whose partitions `times` refers.
            times: event times and arrivals by partition, for partitions with transactions.
            newest: the last record read of each partition.
            now: wall clock, ms.
        """
        if self._entries.keys() != ends.keys():
            previous = self._entries
            self._entries = {tp: previous.get(tp) or _unread(tp) for tp in sorted(ends)}
        for tp, entry in self._entries.items():
            start, end = starts.get(tp, 0), ends[tp]
            entry["start_offset"], entry["end_offset"], entry["max_event_time"] = start, end, None
            if end > start:
                entry["active_at"] = now
        for tp, record in newest.items():
            # a group that decides in silence reads again what an earlier record of this field is beyond
            entry = self._entries[tp]
            if entry.get("newest", {"offset": -1})["offset"] < record.offset:
                entry["newest"] = record._asdict()
        for partition, seen in times.items():
            _update(self._entries[transactions_topic, partition], seen)
        return list(self._entries.values())


def _update(entry: dict[str, Any], times: PartitionTimes) -> None:
    counts = times.lateness
    if earlier := entry.get("recent_lateness"):
        weights = np.array(earlier)
        counts = counts + (weights // 2 if weights.sum() > RECENT else weights)
    running = counts.cumsum()
    enough = int(running.searchsorted(SHARE * running[-1]))
    lag = LATENESS_MS[min(enough, len(LATENESS_MS) - 1)]
    entry["recent_lateness"] = counts.tolist()
    entry["max_event_time"] = times.max_event_time
    entry["event_time"] = _later(entry["event_time"], times.max_event_time)
    entry["watermark"] = _later(entry["watermark"], times.max_arrival - int(lag))


def _unread(tp: PartitionId) -> dict[str, Any]:
    topic, partition = tp
    names = (
        "start_offset", "end_offset", "max_event_time", "event_time", "watermark", "recent_lateness",
        "active_at",
    )  # fmt: skip
    return {"topic": topic, "partition": partition, **dict.fromkeys(names)}


def _later(before: int | None, now: int) -> int:
    return now if before is None else max(before, now)
