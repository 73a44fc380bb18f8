"""Per-partition watermark estimates. Pure.

A partition's watermark is an estimate: all but the slowest hundredth of what happened before it has arrived.
It is the newest arrival less the lag that 99 of 100 recent transactions of the partition kept below. Nothing
waits for it or is decided by it; it tells a person how far a view of the past is complete.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_job.log.records import Offsets, Place
from streaming_job.progress.outcome import LATENESS_MS, PartitionTimes

SHARE = 0.99
RECENT = 10_000
"""Transactions after which older ones count half."""


class Partitions:
    """The `partitions` of progress records, each of which goes on from the one before."""

    def __init__(self, last: Iterable[Mapping[str, Any]] = ()) -> None:
        """Go on after a record.

        Args:
            last: its `partitions`.
        """
        self._entries: dict[Place, dict[str, Any]] = {
            (entry["topic"], entry["partition"]): dict(entry) for entry in last
        }
        self._lateness: dict[int, NDArray[np.float64]] = {}
        """Recent transactions of a partition by LATENESS_MS; begins anew with the process."""

    def moved(
        self,
        starts: Offsets,
        ends: Offsets,
        transactions_topic: str,
        times: Mapping[int, PartitionTimes],
        now: int,
    ) -> list[dict[str, Any]]:
        """The next record's `partitions`; valid until the next call.

        Args:
            starts: by partition: where the transaction before ended; 0 where it is not there.
            ends: by partition: the first offset not taken in; one entry comes of each.
            transactions_topic: the topic that `times` are about.
            times: by partition, of those with transactions.
            now: wall clock, ms.
        """
        if self._entries.keys() != ends.keys():
            before = self._entries
            self._entries = {place: before.get(place) or _unread(place) for place in sorted(ends)}
        for place, entry in self._entries.items():
            start, end = starts.get(place, 0), ends[place]
            entry["start_offset"], entry["end_offset"], entry["max_event_time"] = start, end, None
            if end > start:
                entry["active_at"] = now
        for partition, seen in times.items():
            self._see(partition, self._entries[transactions_topic, partition], seen)
        return list(self._entries.values())

    def _see(self, partition: int, entry: dict[str, Any], times: PartitionTimes) -> None:
        before = self._lateness.get(partition)
        counts = times.lateness.astype(np.float64)
        if before is not None:
            counts += before / 2 if before.sum() > RECENT else before
        self._lateness[partition] = counts
        running = counts.cumsum()
        enough = int(running.searchsorted(SHARE * running[-1]))
        lag = LATENESS_MS[min(enough, len(LATENESS_MS) - 1)]
        entry["max_event_time"] = times.max_event_time
        entry["event_time"] = _later(entry["event_time"], times.max_event_time)
        entry["watermark"] = _later(entry["watermark"], times.max_arrival - int(lag))


def _unread(place: Place) -> dict[str, Any]:
    topic, partition = place
    names = ("start_offset", "end_offset", "max_event_time", "event_time", "watermark", "active_at")
    return {"topic": topic, "partition": partition, **dict.fromkeys(names)}


def _later(before: int | None, now: int) -> int:
    return now if before is None else max(before, now)
