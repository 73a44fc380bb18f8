"""The highest rate that a job sustains, by bisection."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loadtests.locust_run.errors import LoadTestError


@dataclass(frozen=True)
class Probe:
    """One rate that was tried."""

    rate: float
    """Offered, transactions per second."""
    passed: bool
    why: tuple[str, ...] = ()
    """Reasons against it."""
    p99_ms: float | None = None
    achieved: float = 0.0
    generator_limited: bool = False
    """It was the generator that could not: nothing is known of the job."""


@dataclass(frozen=True)
class Peak:
    """What a search found."""

    rate: float | None
    """Highest that passed; None: not even the lowest did."""
    probes: tuple[Probe, ...]
    """In the order in which they were tried."""
    limited_by: str = ""
    """What the next higher one failed for; empty: none was tried that failed."""
    extra: dict[str, Any] = field(default_factory=dict)


def find(
    probe: Callable[[float], Probe], first: float, *, most: float, precision: float = 0.05, probes: int = 12
) -> Peak:
    """Double the rate until it fails, then halve what lies between.

    Args:
        probe: tries a rate.
        first: rate to begin with.
        most: never try more.
        precision: stop when the interval is this share of its lower end.
        probes: stop after so many.

    Raises:
        LoadTestError: the arguments leave nothing to search.
    """
    if not (0 < first <= most and precision > 0 and probes > 0):
        raise LoadTestError("nothing to search: give --from below --most, and a --precision above 0")
    tried: list[Probe] = []
    passed: float | None = None
    failed: float | None = None
    rate = first
    while len(tried) < probes:
        found = probe(rate)
        tried.append(found)
        if found.passed:
            passed = rate if passed is None else max(passed, rate)
        else:
            failed = rate if failed is None else min(failed, rate)
        if failed is None:
            if rate >= most:
                break
            rate = min(rate * 2, most)
        elif passed is None:
            if failed < first / 8:
                break
            rate = failed / 2
        else:
            if failed - passed <= precision * passed:
                break
            rate = (passed + failed) / 2
    limits = [one for one in tried if not one.passed and one.rate == failed]
    reason = ""
    if limits:
        reason = "the generator" if limits[0].generator_limited else "; ".join(limits[0].why)
    return Peak(passed, tuple(tried), reason)
