from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.rig import histograms

pytestmark = pytest.mark.unit
values = st.lists(st.integers(1, 10_000_000), min_size=1, max_size=200)


def recorded(microseconds: list[int]) -> histograms.HdrHistogram:
    histogram = histograms.empty()
    histograms.record(histogram, np.array(microseconds, dtype=np.int64))
    return histogram


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=5))
def test_merged_workers_are_one_histogram_of_all_values(workers: list[list[int]]) -> None:
    merged = histograms.merged([recorded(worker).encode() for worker in workers])
    whole = recorded([value for worker in workers for value in worker])
    assert merged.get_total_count() == sum(map(len, workers))
    assert histograms.percentiles_ms(merged) == histograms.percentiles_ms(whole)


@settings(deadline=None)
@given(values, st.floats(1, 100))
def test_percentiles_are_those_of_the_values_to_three_digits(microseconds: list[int], at: float) -> None:
    percentile = histograms.percentile_ms(recorded(microseconds), at)
    wanted = np.percentile(microseconds, at, method="inverted_cdf") / 1_000
    # HdrHistogram rounds the rank to the nearest whole one
    near = [np.percentile(microseconds, max(0, min(100, at + step)), method="inverted_cdf") / 1_000
            for step in (-100 / len(microseconds), 100 / len(microseconds))]  # fmt: skip
    assert percentile is not None
    assert min(near[0], wanted) * 0.998 <= percentile <= max(near[1], wanted) * 1.002


def test_a_value_out_of_range_counts_as_the_longest() -> None:
    histogram = recorded([0, 10**12])
    assert histogram.get_total_count() == 2
    assert histograms.percentile_ms(histogram, 100.0) == pytest.approx(3_600_000, rel=1e-3)


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert histograms.percentiles_ms(histograms.empty()) == {}
    assert histograms.percentile_ms(histograms.empty(), 50.0) is None
    assert histograms.curve(histograms.empty()) == []


def test_slips_are_recorded_once_to_ten_microseconds() -> None:
    slips, histogram = histograms.Slips(), histograms.empty()
    for values in ([1_004, 2_000], [3_009]):
        slips.add(np.zeros(len(values)), np.array(values))
    for _ in range(2):
        slips.record_into(histogram)
    assert histogram.get_total_count() == 3
    assert histograms.percentiles_ms(histogram, (1.0, 100.0)) == {
        "p1": 1.0,
        "p100": pytest.approx(3.0, rel=1e-3),
    }


def test_the_log_keeps_every_interval(tmp_path: Path) -> None:
    path = tmp_path / "latency.hlog"
    log = histograms.HistogramLog(path)
    for second in range(3):
        log.add(recorded([1_000 * (second + 1)] * 10), second, second + 1)
    log.close()
    result = histograms.read_log(path)
    assert result.get_total_count() == 30
    assert histograms.percentile_ms(result, 100.0) == pytest.approx(3.0, rel=1e-3)
