"""Where event time stands in each input partition: pure.

A partition's watermark is an estimate: all but the slowest hundredth of what happened before it has arrived.
It is the newest arrival less the lag that 99 of 100 recent transactions of the partition kept below. Nothing
waits for it or is decided by it; it tells a person how far a view of the past is complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_job.progress.outcome import LATENESS_MS, Outcome
from streaming_job.progress.record import Batch, OffsetRange

SHARE = 0.99
RECENT = 10_000
"""Transactions after which older ones count half."""


@dataclass
class Partitions:
    """Of all input partitions, after some batch."""

    told: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    """(topic, partition) -> the newest record's `partitions` entry."""
    _lateness: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """Recent transactions of a partition by LATENESS_MS; begins anew with the process."""

    def plus(self, batch: Batch, outcome: Outcome, transactions_topic: str, now: int) -> list[dict[str, Any]]:
        """The next record's `partitions`.

        Args:
            batch: what was read.
            outcome: what came of it.
            transactions_topic: the topic that the outcome's times are about.
            now: wall clock, ms.
        """
        entries = []
        for part in batch.ranges:
            before = self.told.get((part.topic, part.partition), {})
            entry: dict[str, Any] = {
                "topic": part.topic,
                "partition": part.partition,
                "start_offset": part.start,
                "end_offset": part.end,
                "max_event_time": None,
                "event_time": before.get("event_time"),
                "watermark": before.get("watermark"),
                "active_at": now if part.end > part.start else before.get("active_at"),
            }
            if part.topic == transactions_topic:
                self._add_times(entry, part, outcome)
            entries.append(entry)
        self.told = {
            (part.topic, part.partition): entry for part, entry in zip(batch.ranges, entries, strict=True)
        }
        return entries

    def _add_times(self, entry: dict[str, Any], part: OffsetRange, outcome: Outcome) -> None:
        times = outcome.partitions.get(part.partition)
        if times is None:
            return
        counts = self._lateness.get(part.partition, np.zeros(len(LATENESS_MS) + 1))
        counts = (counts / 2 if counts.sum() > RECENT else counts) + times.lateness
        self._lateness[part.partition] = counts
        enough = int(np.searchsorted(np.cumsum(counts), SHARE * counts.sum()))
        lag = LATENESS_MS[min(enough, len(LATENESS_MS) - 1)]
        entry["max_event_time"] = times.max_event_time
        entry["event_time"] = _later(entry["event_time"], times.max_event_time)
        entry["watermark"] = _later(entry["watermark"], times.max_arrival - int(lag))


def _later(before: int | None, now: int) -> int:
    return now if before is None else max(before, now)
