"""Figures of a benchmark, and their measurement in rounds."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_settings import BaseSettings


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    """The result: usually the median of the rounds."""
    unit: str
    detail: str = ""
    """Explanation beside the name."""
    rounds: tuple[float, ...] = ()
    """Value of each round, in order; empty for a single measurement."""
    elapsed: float | None = None
    """Median wall-clock time, if `value` is CPU time."""


@dataclass(frozen=True)
class Circumstance:
    """An entry of a report that is not a figure."""

    name: str
    value: Any
    """Value for JSON."""


Result = Figure | Circumstance


def settings_of(settings: BaseSettings) -> Circumstance:
    """Return the settings of the measured job."""
    return Circumstance("settings", settings.model_dump(mode="json"))


def per_item(
    name: str,
    unit: str,
    rounds: int,
    items: int,
    prepare: Callable[[], Callable[[], object]],
    *,
    scale: float,
    detail: str = "",
) -> Figure:
    """Measure the time of one item: this thread's CPU time, which other processes do not affect.

    Args:
        items: number of items that one call processes.
        prepare: returns the call to measure; not measured itself.
        scale: factor from seconds per item to the unit.
    """
    used, elapsed = [], []
    for _ in range(rounds):
        call = prepare()
        clock, cpu = time.perf_counter(), time.thread_time()
        call()
        used.append((time.thread_time() - cpu) / items * scale)
        elapsed.append((time.perf_counter() - clock) / items * scale)
    return Figure(
        name, statistics.median(used), unit, detail, rounds=tuple(used), elapsed=statistics.median(elapsed)
    )
