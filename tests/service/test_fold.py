"""Totals of progress records: each batch once, whatever is read twice, cut off or broken."""

import math
import random

import pytest
from progress_records import progress

from service.fold import Histogram, Totals

pytestmark = pytest.mark.unit


def folded(*records: dict[str, object]) -> Totals:
    totals = Totals()
    for record in records:
        totals.add(record)
    return totals


def test_batches_add_up() -> None:
    totals = folded(*(progress(batch) for batch in range(5)))
    assert totals.batches == 5
    assert totals.counts["transactions"] == 500
    assert totals.dead_letters == {"malformed_json": 5, "too_late": 5}
    assert totals.rules == {"score": 10, "velocity_5m": 10}
    assert totals.batch_seconds == pytest.approx(0.75)
    assert totals.phase_seconds == pytest.approx({"keyed_stage": 0.4, "sink": 0.1})
    assert totals.rebuilds == 5
    assert totals.end_offsets == {("transactions", 0): 500}
    assert totals.last is not None
    assert totals.last["batch_id"] == 4


def test_reading_the_topic_again_from_its_start_counts_nothing_twice() -> None:
    records = [progress(batch) for batch in range(5)]
    totals = folded(*records, *records, progress(5))
    assert totals.batches == 6
    assert totals.repeated == 5
    assert totals.counts["alerts"] == 18


def test_a_topic_whose_start_has_expired_counts_what_is_left() -> None:
    totals = folded(progress(40), progress(41), progress(50))
    assert totals.counts["transactions"] == 300


def test_a_new_query_starts_its_batches_at_zero_and_adds_to_the_totals() -> None:
    totals = folded(progress(0), progress(1), progress(0, "q2"), progress(1, "q2"), progress(1, "q2"))
    assert totals.batches == 4
    assert totals.last_batch == {"q1": 1, "q2": 1}


def test_event_times_never_go_back_and_a_batch_without_one_keeps_them() -> None:
    def at(batch: int, time: int | None) -> dict[str, object]:
        part = {"topic": "transactions", "partition": 0, "start_offset": 0, "end_offset": 9}
        return progress(batch, partitions=[{**part, "max_event_time": time}])

    assert folded(at(0, 50), at(1, 40), at(2, None)).event_times == {("transactions", 0): 50}


@pytest.mark.parametrize(
    "broken",
    [
        {"counts": {"alerts": "many"}},
        {"latency_ms": {"le": ["x"], "counts": [1]}},
        {"partitions": [{"topic": "transactions"}]},
        {"state": {}},
        {"phases_ms": None},
        {"written_at": None},
        {"batch_id": None},
    ],
)
def test_a_broken_record_adds_nothing_at_all(broken: dict[str, object]) -> None:
    totals = folded(progress(0))
    before = repr(totals)
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        totals.add({**progress(1), **broken})
    assert repr(totals) == before
    assert totals.add(progress(1))


def test_histograms_merge_bucket_by_bucket_in_seconds() -> None:
    totals = folded(progress(0), progress(1))
    assert totals.latency.cumulative() == [(0.1, 20), (0.2, 180), (math.inf, 200)]
    assert totals.latency.total is None


def test_a_sum_is_told_only_when_every_record_tells_it() -> None:
    histogram = Histogram()
    histogram.add({"le": [1], "counts": [2, 1], "sum": 4.5})
    histogram.add({"le": [1], "counts": [1, 0], "sum": 0.5})
    assert histogram.total == 5.0
    histogram.add({"le": [1], "counts": [1, 0]})
    assert histogram.total is None


def test_changed_bounds_give_their_union_and_lose_no_event() -> None:
    rng = random.Random(0)
    histogram, events = Histogram(), 0
    for bounds in ([1, 2, 4], [1, 3, 4], [8]):
        counts = [rng.randrange(10) for _ in range(len(bounds) + 1)]
        histogram.add({"le": bounds, "counts": counts})
        events += sum(counts)
    cumulative = histogram.cumulative()
    assert [bound for bound, _ in cumulative] == [1, 2, 3, 4, 8, math.inf]
    assert [count for _, count in cumulative] == sorted(count for _, count in cumulative)
    assert cumulative[-1][1] == events
