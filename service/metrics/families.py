"""Functions that create a Prometheus metric family in one call."""

import math
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, StateSetMetricFamily

from streaming_job.progress.histogram import Histogram

Values = Iterable[tuple[list[str], float]]
"""(label values, value) of each sample."""


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Create a gauge without labels."""
    return GaugeMetricFamily(name, meaning, value=value)


def gauges(name: str, meaning: str, labels: list[str], values: Values) -> Metric:
    """Create a gauge with one sample for each set of label values."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counter(name: str, meaning: str, value: float) -> Metric:
    """Create a counter without labels; the sample's name ends in `_total`."""
    return CounterMetricFamily(name, meaning, value=value)


def counters(name: str, meaning: str, labels: list[str], values: Values) -> Metric:
    """Create a counter with one sample for each set of label values."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counters_by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """Create a counter with one sample for each value of one label."""
    return counters(name, meaning, [label], (([key], value) for key, value in sorted(values.items())))


def state_set(
    name: str, meaning: str, labels: list[str], states: Iterable[str], values: Iterable[tuple[list[str], str]]
) -> Metric:
    """Create a state set: one sample per state, 1 for the current one.

    The label of the state has the metric's name.

    Args:
        meaning: help text.
        labels: labels besides the state's.
        states: all possible states.
        values: (label values, current state).
    """
    all_states = list(states)
    family = StateSetMetricFamily(name, meaning, labels=labels)
    for key, current in values:
        family.add_metric(key, {state: state == current for state in all_states})
    return family


def histogram(name: str, meaning: str, values: Histogram, scale: float = 1.0) -> Metric:
    """Create a histogram without labels; `scale` multiplies bounds and sum."""
    family = Metric(name, meaning, "histogram")
    add_histogram(family, {}, values, scale)
    return family


def add_histogram(family: Metric, labels: Mapping[str, str], values: Histogram, scale: float = 1.0) -> None:
    """Add a histogram's samples to a family; `scale` multiplies bounds and sum."""
    name, running = family.name, 0
    for bound, running in values.cumulative():
        upper = "+Inf" if bound == math.inf else f"{bound * scale:.12g}"
        family.add_sample(f"{name}_bucket", {**labels, "le": upper}, running)
    family.add_sample(f"{name}_count", dict(labels), running)
    family.add_sample(f"{name}_sum", dict(labels), values.total * scale)
