"""Functions that fill a metric family of the table in one call."""

import math
from collections.abc import Iterable, Mapping

from prometheus_client.core import Metric

from service.metrics.table import FAMILIES
from streaming_job.progress.histogram import Histogram

Values = Iterable[tuple[Iterable[str], float]]
"""(label values, in the order of the table; value) of each sample."""


def sample(name: str, value: float) -> Metric:
    """Create a family without labels."""
    return samples(name, [((), value)])


def samples(name: str, values: Values) -> Metric:
    """Create a family with one sample for each set of label values."""
    row, family = FAMILIES[name], empty(name)
    for key, value in values:
        family.add_sample(row.exposed(), dict(zip(row.labels, key, strict=True)), value)
    return family


def infos(name: str, keys: Iterable[Iterable[str]]) -> Metric:
    """Create an info: one sample for each set of label values."""
    return samples(name, ((key, 1.0) for key in keys))


def state_set(name: str, states: Iterable[str], values: Iterable[tuple[list[str], str]]) -> Metric:
    """Create a state set: one sample per state, 1 for the current one.

    Args:
        values: (label values without the state's, current state).
    """
    row, family, all_states = FAMILIES[name], empty(name), list(states)
    for key, current in values:
        for state in all_states:
            labels = dict(zip(row.exposed_labels(), (*key, state), strict=True))
            family.add_sample(name, labels, float(state == current))
    return family


def summary(name: str, count: float, total: float) -> Metric:
    """Create a summary without labels."""
    family = empty(name)
    family.add_sample(f"{name}_count", {}, count)
    family.add_sample(f"{name}_sum", {}, total)
    return family


def histogram(name: str, values: Histogram, scale: float = 1.0) -> Metric:
    """Create a histogram without labels; `scale` multiplies bounds and sum."""
    family = empty(name)
    add_histogram(family, {}, values, scale)
    return family


def empty(name: str) -> Metric:
    """Create a family without samples."""
    return Metric(name, FAMILIES[name].meaning, FAMILIES[name].type)


def add_histogram(family: Metric, labels: Mapping[str, str], values: Histogram, scale: float = 1.0) -> None:
    """Add a histogram's samples to a family; `scale` multiplies bounds and sum."""
    name, running = family.name, 0
    for bound, running in values.cumulative():
        upper = "+Inf" if bound == math.inf else f"{bound * scale:.12g}"
        family.add_sample(f"{name}_bucket", {**labels, "le": upper}, running)
    family.add_sample(f"{name}_count", dict(labels), running)
    family.add_sample(f"{name}_sum", dict(labels), values.total * scale)
