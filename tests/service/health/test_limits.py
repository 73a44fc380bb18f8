"""Limits learned from measured times, and rates from the growth of totals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.health.limits import KEPT, LearnedLimit, percentile
from service.health.recent import RecentRates, quantile
from streaming_job.progress.totals import Totals

pytestmark = pytest.mark.unit


def test_a_limit_is_ten_times_the_99th_percentile_between_floor_and_ceiling() -> None:
    learned = LearnedLimit(floor_s=5.0, ceiling_s=60.0)
    assert learned.limit_s == 60.0  # nothing has been measured
    for _ in range(200):
        learned.add(0.1)
    assert learned.limit_s == 5.0
    learned.add(300.0)  # one outage in two hundred does not move it
    assert learned.limit_s == 5.0
    for _ in range(10):
        learned.add(2.0)
    assert learned.limit_s == 20.0
    for _ in range(100):
        learned.add(30.0)
    assert learned.limit_s == 60.0
    for _ in range(KEPT):
        learned.add(1.0)
    assert learned.limit_s == 10.0  # old values are dropped


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_the_percentile_is_the_smallest_value_that_99_of_100_do_not_exceed(measured: list[float]) -> None:
    result = percentile(measured)
    assert result in measured
    at_most = sum(value <= result for value in measured if result is not None)
    assert at_most >= math.ceil(0.99 * len(measured))
    below = [value for value in measured if result is not None and value < result]
    assert len(below) < 0.99 * len(measured)


def test_a_quantile_lies_within_its_bucket() -> None:
    cumulative = [(10.0, 50), (20.0, 100), (math.inf, 100)]
    assert quantile(cumulative, 0.5) == 10.0
    assert quantile(cumulative, 0.75) == 15.0
    assert quantile(cumulative, 0.25) == 5.0
    assert quantile([(10.0, 0), (math.inf, 4)], 0.5) == 10.0
    assert quantile([(10.0, 0), (math.inf, 0)], 0.5) is None


def totals(transactions: int, fast: int, slow: int) -> Totals:
    result = Totals()
    result.counts["transactions"] = transactions
    result.histograms["latency_ms"].add([10.0, 100.0], [fast, slow, 0], 0.0)
    return result


def test_rates_are_of_the_last_minute_and_restart_with_the_totals() -> None:
    recent = RecentRates()
    recent.add(0.0, totals(1_000, 1_000, 0))
    assert recent.rates is None
    for step in range(1, 100):
        recent.add(2.0 * step, totals(1_000 + 10 * step, 1_000, 10 * step))
    rates = recent.rates
    assert rates is not None
    assert rates.per_s == pytest.approx(5.0)
    assert rates.latency_s[50] == pytest.approx(0.055)  # the fast ones came before the last minute
    recent.add(300.0, totals(5, 5, 0))
    assert recent.rates is None
