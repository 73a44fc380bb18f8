"""Totals that the job carries from batch to batch: nothing is lost on the way through their record."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_job.progress.outcome import LATENESS_MS, Outcome, PartitionTimes
from streaming_job.progress.watermarks import Partitions
from streaming_job.progress.record import Batch, OffsetRange
from streaming_job.progress.totals import HISTOGRAMS, Histogram, Totals

pytestmark = pytest.mark.unit


def record(number: int = 1, **changes: object) -> dict[str, object]:
    """A batch in which everything happened `number` times."""
    histogram = {"le": [0, 10.0], "counts": [number, 0, 2 * number], "sum": 50.5 * number}
    return {
        "started_at": 1_000, "written_at": 1_000 + number, "counts": {"transactions": number, "alerts": 0},
        "dead_letters_by_reason": {"too_late": number}, "alerts_by_rule": {"score": number},
        **dict.fromkeys(HISTOGRAMS, histogram), "phases_ms": {"run": 1.25 * number},
        "state": {"rebuilds": number}, **changes,
    }  # fmt: skip


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6))
def test_totals_are_the_sums_whatever_process_adds_them(numbers):
    totals = Totals()
    for number in numbers:
        totals = Totals.from_json(totals.plus(record(number)).to_json())
    assert totals.batches == len(numbers)
    assert (
        totals.counts["transactions"]
        == totals.dead_letters["too_late"]
        == totals.rules["score"]
        == sum(numbers)
    )
    assert totals.histograms["scores"].cumulative() == [
        (0.0, sum(numbers)), (10.0, sum(numbers)), (math.inf, 3 * sum(numbers))
    ]  # fmt: skip
    assert totals.histograms["latency_ms"].total == pytest.approx(50.5 * sum(numbers))
    assert (totals.batch_ms, totals.rebuilds) == (sum(numbers), sum(numbers))
    assert totals.since == 1_000
    assert Totals.from_json(totals.to_json()) == totals


def test_adding_a_batch_leaves_the_totals_before_it_alone():
    """A batch whose transaction fails is added again, to the same totals."""
    totals = Totals().plus(record(3))
    before = totals.to_json()
    assert totals.plus(record(4)).to_json() == totals.plus(record(4)).to_json()
    assert totals.to_json() == before


def test_changed_bounds_give_their_union_and_lose_nothing():
    histogram = Histogram()
    for bounds in ([1, 2, 4], [1, 3, 4], [8]):
        histogram.add({"le": bounds, "counts": list(range(len(bounds) + 1)), "sum": 1})
    again = Histogram.from_json(histogram.to_json())
    assert again == histogram
    assert [bound for bound, _ in again.cumulative()] == [1, 2, 3, 4, 8, math.inf]
    assert again.cumulative()[-1][1] == 6 + 6 + 1


@pytest.mark.parametrize("broken", [{}, {"since": 1}, {**Totals().to_json(), "counts": {"a": "b"}}, None])
def test_what_are_no_totals_is_refused(broken):
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Totals.from_json(broken)


def outcome(**partitions: tuple[int, int, list[int]]) -> Outcome:
    """Of partitions p0, p1 ...: greatest event time, newest arrival, lateness of each transaction."""
    found = {}
    for name, (latest, newest, lateness) in partitions.items():
        counts = np.bincount(np.searchsorted(LATENESS_MS, lateness), minlength=len(LATENESS_MS) + 1)
        found[int(name[1:])] = PartitionTimes(latest, newest, counts)
    return Outcome(partitions=found)


def batch(number: int, *ends: int) -> Batch:
    ranges = tuple(OffsetRange("tx", p, max(end - 1, 0), end) for p, end in enumerate(ends))
    return Batch("job", "query", number, 0, (*ranges, OffsetRange("table", 0, 5, 5)))


def test_the_watermark_is_the_newest_arrival_less_what_nearly_all_kept_below():
    partitions = Partitions()
    # of 100 transactions one is a day late, the others less than a second
    told = partitions.plus(
        batch(0, 100), outcome(p0=(9_990_000, 10_000_000, [900] * 99 + [86_000_000])), "tx", 1
    )
    assert (told[0]["event_time"], told[0]["watermark"]) == (9_990_000, 10_000_000 - 1_000)
    assert told[1]["watermark"] is None
    # two in a hundred: the hundredth slowest is one of them
    late = partitions.plus(batch(1, 200), outcome(p0=(1, 10_000_001, [86_000_000] * 3)), "tx", 2)
    assert late[0]["watermark"] == 10_000_000 - 1_000  # it never goes back
    assert (late[0]["max_event_time"], late[0]["event_time"]) == (1, 9_990_000)


def test_what_a_partition_reached_outlives_batches_without_it_and_processes():
    partitions = Partitions()
    first = partitions.plus(batch(0, 7, 3), outcome(p0=(50, 60, [10]), p1=(80, 90, [10])), "tx", 1_000)
    assert [entry["active_at"] for entry in first] == [1_000, 1_000, None]
    later = Partitions({(e["topic"], e["partition"]): e for e in first})
    idle = Batch("job", "query", 1, 0, (OffsetRange("tx", 0, 7, 7), OffsetRange("tx", 1, 3, 4)))
    second = later.plus(idle, outcome(p1=(81, 91, [10])), "tx", 2_000)
    assert [(e["event_time"], e["max_event_time"], e["active_at"]) for e in second] == [
        (50, None, 1_000), (81, 81, 2_000)
    ]  # fmt: skip
