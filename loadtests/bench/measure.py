"""Measurement in rounds, and the report with versions, machine and load average."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings

PACKAGES = ("numpy", "numba", "pyarrow", "pyspark", "scikit-learn", "confluent-kafka")


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    """The result: usually the median of the rounds."""
    unit: str
    rounds: tuple[float, ...]
    """Value of each round, in order; empty for a single measurement."""
    detail: str = ""
    """Explanation beside the name."""
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
        name: name of the figure.
        unit: unit of the value.
        rounds: number of rounds.
        items: number of items that one call processes.
        prepare: returns the call to measure; not measured itself.
        scale: factor from seconds per item to the unit.
        detail: detail of the figure.
    """
    used, elapsed = [], []
    for _ in range(rounds):
        call = prepare()
        clock, cpu = time.perf_counter(), time.thread_time()
        call()
        used.append((time.thread_time() - cpu) / items * scale)
        elapsed.append((time.perf_counter() - clock) / items * scale)
    return Figure(
        name, statistics.median(used), unit, tuple(used), detail, elapsed=statistics.median(elapsed)
    )


def surroundings() -> dict[str, Any]:
    """Return machine, versions and load average for a report."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
        "load_average": list(os.getloadavg()),
    }


def report(command: str, before: dict[str, Any], results: list[Result]) -> dict[str, Any]:
    """Build a report as JSON values.

    Args:
        command: the command line.
        before: `surroundings` at the start.
        results: figures and circumstances.
    """
    return {
        "command": command,
        **before,
        **{result.name: result.value for result in results if isinstance(result, Circumstance)},
        "load_average_after": list(os.getloadavg()),
        "figures": [asdict(figure) for figure in results if isinstance(figure, Figure)],
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
