"""Totals that a key group carries from commit to commit, and their sums over groups."""

import math

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_job.progress.histogram import Histogram
from streaming_job.progress.totals import HISTOGRAMS, Totals

pytestmark = pytest.mark.unit


def through_json(value: object) -> dict:
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


def totals(number: int, since: int = 1_000) -> Totals:
    """Totals of a group in which everything happened `number` times."""
    histogram = {"le": [0, 10.0], "counts": [number, 0, 2 * number], "sum": 50.5 * number}
    return Totals.from_json({
        "since": since, "commits": number, "counts": {"transactions": number, "alerts": 0},
        "dead_letters_by_reason": {"too_late": number},
        "dead_letters_by_topic": {"transactions": number}, "alerts_by_rule": {"score": number},
        **dict.fromkeys(HISTOGRAMS, histogram), "phases_ms": {"run": 1.25 * number}, "elapsed_ms": number,
        "rebuilds": number, "trials": {},
    })  # fmt: skip


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6))
def test_totals_of_groups_are_their_sums(numbers):
    total = Totals.of_groups(totals(number) for number in numbers)
    number = sum(numbers)
    assert total.commits == total.rebuilds == total.elapsed_ms == number
    assert total.counts["transactions"] == total.dead_letters["too_late"] == total.rules["score"] == number
    assert total.histograms["scores"].cumulative() == [(0.0, number), (10.0, number), (math.inf, 3 * number)]
    assert total.histograms["latency_ms"].total == pytest.approx(50.5 * number)
    assert through_json(Totals.from_json(through_json(total.to_json())).to_json()) == through_json(
        total.to_json()
    )


def test_the_sum_does_not_change_the_groups_and_begins_with_the_first():
    groups = [totals(3, since=7_000), totals(2, since=5_000), Totals()]
    before = [through_json(group.to_json()) for group in groups]
    assert Totals.of_groups(groups).since == 5_000
    assert Totals.of_groups(reversed(groups)).since == 5_000
    assert [through_json(group.to_json()) for group in groups] == before


def test_changed_bounds_give_their_union_and_lose_nothing():
    histogram = Histogram()
    for bounds in ([1, 2, 4], [1, 3, 4], [8]):
        histogram.add(bounds, np.arange(len(bounds) + 1), 1.0)
    again = Histogram.from_json(through_json(histogram.to_json()))
    assert again.cumulative() == histogram.cumulative()
    assert again.cumulative() == [(1, 0), (2, 1), (3, 2), (4, 6), (8, 6), (math.inf, 13)]
    assert again.total == 3.0


@pytest.mark.parametrize("broken", [{}, {"since": 1}, {**Totals().to_json(), "counts": {"a": "b"}}, None])
def test_invalid_totals_are_refused(broken):
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Totals.from_json(broken)


def test_a_histogram_with_too_few_counts_is_refused():
    with pytest.raises(ValueError, match="2 counts for 2 bounds"):
        Histogram.from_json({"le": [1, 2], "counts": [1, 2], "sum": 0})
