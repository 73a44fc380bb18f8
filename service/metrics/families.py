"""Metric families made in one call."""

import math
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, StateSetMetricFamily

from streaming_job.progress.histogram import Histogram

Values = Iterable[tuple[list[str], float]]
"""Label values, and the value."""


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Without labels."""
    return GaugeMetricFamily(name, meaning, value=value)


def gauges(name: str, meaning: str, labels: list[str], values: Values) -> Metric:
    """One sample for each set of label values."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counter(name: str, meaning: str, value: float) -> Metric:
    """Without labels; the sample's name ends in `_total`."""
    return CounterMetricFamily(name, meaning, value=value)


def counters(name: str, meaning: str, labels: list[str], values: Values) -> Metric:
    """One sample for each set of label values."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counters_by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    """One sample for each value of one label."""
    return counters(name, meaning, [label], (([key], value) for key, value in sorted(values.items())))


def state_set(
    name: str, meaning: str, labels: list[str], states: Iterable[str], values: Iterable[tuple[list[str], str]]
) -> Metric:
    """One sample for each state, of which one is 1; the label of the state is named as the metric.

    Args:
        name: of the family.
        meaning: in words.
        labels: besides the state's.
        states: all there can be.
        values: values of the labels, and the state that holds.
    """
    every = list(states)
    family = StateSetMetricFamily(name, meaning, labels=labels)
    for key, holds in values:
        family.add_metric(key, {state: state == holds for state in every})
    return family


def histogram(name: str, meaning: str, found: Histogram, scale: float = 1.0) -> Metric:
    """A histogram without labels; `scale` is of bounds and sum."""
    family = Metric(name, meaning, "histogram")
    add_histogram(family, {}, found, scale)
    return family


def add_histogram(family: Metric, labels: Mapping[str, str], found: Histogram, scale: float = 1.0) -> None:
    """Add a histogram's samples to a family."""
    name, running = family.name, 0
    for bound, running in found.cumulative():
        told = "+Inf" if bound == math.inf else f"{bound * scale:.12g}"
        family.add_sample(f"{name}_bucket", {**labels, "le": told}, running)
    family.add_sample(f"{name}_count", dict(labels), running)
    family.add_sample(f"{name}_sum", dict(labels), found.total * scale)
