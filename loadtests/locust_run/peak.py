"""The highest rate that a job sustains, by bisection."""

from collections.abc import Callable
from dataclasses import dataclass

from loadtests.locust_run.errors import LoadTestError


@dataclass(frozen=True)
class Probe:
    """A test of one rate."""

    rate: float
    """Offered rate, transactions per second."""
    passed: bool
    why: tuple[str, ...] = ()
    """Reasons of the failure."""
    p99_ms: float | None = None
    achieved: float = 0.0
    generator_limited: bool = False
    """Whether the generator was the limit, so that nothing is known of the job."""


@dataclass(frozen=True)
class Peak:
    """Result of a search."""

    rate: float | None
    """Highest rate that passed; None: not even the lowest did."""
    probes: tuple[Probe, ...]
    """Probes in the order of the search."""
    limited_by: str = ""
    """Why the lowest rate that failed did so; empty: no rate failed."""


def find(
    probe: Callable[[float], Probe], first: float, *, most: float, precision: float = 0.05, probes: int = 12
) -> Peak:
    """Find the highest passing rate: double it until it fails, or halve it until it passes; then bisect.

    If a sixteenth of `first` fails, too, the search ends without a passing rate.

    Args:
        precision: width of the final interval as a share of its lower end.

    Raises:
        LoadTestError: the arguments leave nothing to search.
    """
    if not (0 < first <= most and precision > 0 and probes > 0):
        raise LoadTestError("nothing to search: give --from above 0, at most --most, and --precision above 0")
    tried: list[Probe] = []
    passed: float | None = None
    failed: float | None = None
    rate = first
    while len(tried) < probes:
        result = probe(rate)
        tried.append(result)
        if result.passed:
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
    limits = [result for result in tried if not result.passed and result.rate == failed]
    reason = ""
    if limits:
        reason = "the generator" if limits[0].generator_limited else "; ".join(limits[0].why)
    return Peak(passed, tuple(tried), reason)
