"""Rounds of something, and a report that says where and under what load they ran."""

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
    """Median of the rounds."""
    unit: str
    rounds: tuple[float, ...]
    """Every round, in order."""
    detail: str = ""
    """What was measured, where the name does not say it."""
    elapsed: float | None = None
    """The median by the clock on the wall where `value` is processor time."""


@dataclass(frozen=True)
class Circumstance:
    """Something that a report tells beside its figures."""

    name: str
    value: Any
    """As JSON."""


Found = Figure | Circumstance


def settings_of(settings: BaseSettings) -> Circumstance:
    """The settings that the measured job ran with."""
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
    """Time of one item: this thread's processor time, which other processes do not add to.

    Args:
        name: of the figure.
        unit: of the result.
        rounds: how many.
        items: that one call works on.
        prepare: makes the call to measure, and is not measured itself.
        scale: results are seconds an item times this.
        detail: of the figure.
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
    """Machine, versions and load, for a report."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
        "load_average": list(os.getloadavg()),
    }


def report(command: str, before: dict[str, Any], found: list[Found]) -> dict[str, Any]:
    """A report as JSON values.

    Args:
        command: that was run.
        before: `surroundings` at the start.
        found: what came out.
    """
    return {
        "command": command,
        **before,
        **{fact.name: fact.value for fact in found if isinstance(fact, Circumstance)},
        "load_average_after": list(os.getloadavg()),
        "figures": [asdict(figure) for figure in found if isinstance(figure, Figure)],
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
