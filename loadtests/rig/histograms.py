"""Histograms of microseconds (HdrHistogram, three digits): bulk recording, merging, and a log file."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader, HistogramLogWriter

LOWEST_US, HIGHEST_US, DIGITS = 1, 3_600_000_000, 3
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0)
_MICROSECONDS = 1_000.0
"""Microseconds per millisecond."""


def empty() -> HdrHistogram:
    """Create a histogram of 1 us to an hour with three significant digits; `record` clips to this range."""
    return HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)


def of(microseconds: npt.ArrayLike) -> HdrHistogram:
    """Create a histogram of values, shape (n,)."""
    histogram = empty()
    record(histogram, np.asarray(microseconds, dtype=np.int64))
    return histogram


def record(histogram: HdrHistogram, microseconds: npt.NDArray[np.int64]) -> None:
    """Record values, shape (n,), with one call per distinct value."""
    values, counts = np.unique(np.clip(microseconds, LOWEST_US, HIGHEST_US), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)


class Slips:
    """Slips of a sender, whose thread only collects them; another thread, or it later, records them."""

    def __init__(self) -> None:
        self._arrays: deque[npt.NDArray[np.int64]] = deque()

    def add(self, at_ms: npt.NDArray[Any], slips_us: npt.NDArray[np.int64]) -> None:
        """Collect the slips of records that were just sent."""
        self._arrays.append(slips_us)

    def record_into(self, histogram: HdrHistogram) -> None:
        """Record what was collected since the last call."""
        if arrays := [self._arrays.popleft() for _ in range(len(self._arrays))]:
            # ten microseconds are precise enough, and few distinct values are fast to record
            record(histogram, np.concatenate(arrays) // 10 * 10)


def merged(encoded: Iterable[bytes | str]) -> HdrHistogram:
    """Decode and add up histograms encoded by `HdrHistogram.encode`."""
    total = empty()
    for text in encoded:
        total.decode_and_add(text)
    return total


def percentiles_ms(histogram: HdrHistogram, which: Sequence[float] = PERCENTILES) -> dict[str, float]:
    """Return p50, p90, ..., p100 in ms; empty if nothing was recorded."""
    if not histogram.get_total_count():
        return {}
    return {f"p{at:g}": histogram.get_value_at_percentile(at) / _MICROSECONDS for at in which}


def percentile_ms(histogram: HdrHistogram, at: float) -> float | None:
    """Return one percentile in ms; None if nothing was recorded."""
    if not histogram.get_total_count():
        return None
    return float(histogram.get_value_at_percentile(at) / _MICROSECONDS)


def curve(histogram: HdrHistogram) -> list[tuple[float, float]]:
    """Return (percentile, ms) pairs: five of them for each halving of the share of greater values."""
    if not histogram.get_total_count():
        return []
    return [
        (step.percentile_level_iterated_to, step.value_iterated_to / _MICROSECONDS)
        for step in histogram.get_percentile_iterator(5)
    ]


class HistogramLog:
    """A file of interval histograms in HdrHistogram's log format, which HdrHistogram's tools read."""

    def __init__(self, path: Path) -> None:
        self._file: Any = path.open("w", encoding="utf-8")
        self._writer = HistogramLogWriter(self._file)
        self._writer.output_log_format_version()
        self._writer.output_comment(f"[StartTime: {time.time():.3f} (seconds since epoch)]")
        self._writer.output_legend()

    def add(self, histogram: HdrHistogram, from_s: float, to_s: float) -> None:
        """Append the histogram of an interval, seconds from the start of the run."""
        self._writer.output_interval_histogram(histogram, from_s, to_s, max_value_unit_ratio=_MICROSECONDS)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_log(path: Path) -> HdrHistogram:
    """Return the sum of all intervals of a log."""
    total = empty()
    reader = HistogramLogReader(str(path), empty())
    while reader.add_next_interval_histogram(total):
        pass
    return total
