"""The watermark of each partition, from commit to commit."""

import json

import numpy as np
import pytest

from streaming_job.log.records import Offsets
from streaming_job.progress.outcome import LATENESS_MS, PartitionTimes
from streaming_job.progress.watermarks import Partitions

pytestmark = pytest.mark.unit


def times(latest: int, newest: int, lateness: list[int]) -> PartitionTimes:
    """Return the times of a partition's transactions.

    Args:
        latest: greatest event time, ms.
        newest: newest arrival, ms.
        lateness: of each transaction, ms.
    """
    counts = np.bincount(np.searchsorted(LATENESS_MS, lateness), minlength=len(LATENESS_MS) + 1)
    return PartitionTimes(latest, newest, counts)


def offsets(*transactions: int, table: int = 5) -> Offsets:
    """Offsets of the partitions tx-0, tx-1 ... and of the table."""
    return {("table", 0): table} | {("tx", partition): end for partition, end in enumerate(transactions)}


def test_the_watermark_is_the_newest_arrival_minus_the_99th_percentile_of_lateness():
    partitions = Partitions()
    # of 100 transactions one is a day late, the others less than a second
    seen = {0: times(9_990_000, 10_000_000, [900] * 99 + [86_000_000])}
    table, watermarks = partitions.advance(offsets(0), offsets(100), "tx", seen, {}, 1)
    assert (watermarks["event_time"], watermarks["watermark"]) == (9_990_000, 10_000_000 - 1_000)
    assert table["watermark"] is None
    # now more than one in a hundred is a day late, so the 99th percentile is a day
    seen = {0: times(1, 10_000_001, [86_000_000] * 3)}
    _, late = partitions.advance(offsets(100), offsets(200), "tx", seen, {}, 2)
    assert late["watermark"] == 10_000_000 - 1_000  # the watermark never goes back
    assert (late["max_event_time"], late["event_time"]) == (1, 9_990_000)


def test_a_partitions_watermark_survives_commits_without_it_and_changes_of_process():
    seen = {0: times(50, 60, [10]), 1: times(80, 90, [10])}
    first = [
        dict(e) for e in Partitions().advance(offsets(0, 0), offsets(7, 3, table=0), "tx", seen, {}, 1_000)
    ]
    assert [entry["active_at"] for entry in first] == [None, 1_000, 1_000]
    later = Partitions(first)
    second = later.advance(
        offsets(7, 3, table=0), offsets(7, 4, table=0), "tx", {1: times(81, 91, [10])}, {}, 2_000
    )
    assert [(e["event_time"], e["max_event_time"], e["active_at"]) for e in second] == [
        (None, None, None), (50, None, 1_000), (81, 81, 2_000)
    ]  # fmt: skip
    assert [(e["start_offset"], e["end_offset"]) for e in second] == [(0, 0), (7, 7), (3, 4)]


def test_a_late_sender_holds_the_watermark_after_the_group_has_moved_to_another_process():
    half_an_hour = 30 * 60_000
    seen = {0: times(9_990_000, 10_000_000, [900] * 10)}
    first = Partitions().advance(offsets(0), offsets(10), "tx", seen, {}, 1)
    held = first[1]["watermark"]
    for step in range(5):
        # each commit is made by a process that knows the previous record only; every other commit has no late
        # transactions
        late = [half_an_hour] * 2 if step % 2 == 0 else []
        seen = {0: times(10_000_000, 10_000_000 + 250 * step, [900] * 10 + late)}
        first = Partitions(json.loads(json.dumps(first))).advance(offsets(10), offsets(20), "tx", seen, {}, 2)
        assert first[1]["watermark"] == held


def test_partitions_are_added_and_removed_with_the_offsets():
    partitions = Partitions()
    partitions.advance(offsets(0), offsets(7), "tx", {0: times(50, 60, [10])}, {}, 1_000)
    grown = partitions.advance(offsets(7), offsets(7, 2), "tx", {}, {}, 2_000)
    assert [(e["topic"], e["partition"], e["start_offset"], e["event_time"]) for e in grown] == [
        ("table", 0, 5, None), ("tx", 0, 7, 50), ("tx", 1, 0, None)
    ]  # fmt: skip
    assert [e["partition"] for e in partitions.advance({}, {("tx", 0): 7}, "tx", {}, {}, 3_000)] == [0]
