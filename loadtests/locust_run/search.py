"""Search for the highest rate at which a running job keeps the latency's bound and a stable lag."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from loadtests.locust_run import launch
from loadtests.locust_run.peak import Probe
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.result import Result
from loadtests.locust_run.targets import Target
from loadtests.locust_run.verdict import Bounds, failures
from loadtests.rig.report import Say

OF_GENERATOR = ("generator's slip", "unsent", "achieved rate", "worker lost")
"""Prefixes of the failure messages that concern the generator and say nothing about the job."""
FEWEST = 6
"""Minimal number of samples for a trend."""
SURE = 3.0
"""Number of standard errors by which a significant slope exceeds 0."""
SHARE = 0.01
"""Minimal slope of a growing lag, as a share of the sending rate. With a smaller slope the job decides more
than 99 of 100 transactions as fast as they are sent."""


@dataclass(frozen=True)
class Trend:
    """The trend of a lag: a line through its samples, by least squares."""

    slope: float
    """Records per second."""
    error: float
    """Standard error of the slope, records per second."""

    def grows(self, rate: float) -> bool:
        """Return whether the lag grows significantly, and by more than a hundredth of the rate.

        Args:
            rate: sent transactions per second.
        """
        return self.slope > SHARE * rate and self.slope > SURE * self.error


def trend(samples: Sequence[tuple[float, int]]) -> Trend | None:
    """Fit a line through samples (second, lag in records); None if they are too few or simultaneous."""
    if len(samples) < FEWEST:
        return None
    at, lag = np.array(samples, dtype=np.float64).T
    spread = at - at.mean()
    if not (square := float(spread @ spread)):
        return None
    slope = float(spread @ lag) / square
    residuals = lag - lag.mean() - slope * spread
    error = math.sqrt(float(residuals @ residuals) / (len(samples) - 2) / square)
    return Trend(slope, error)


def grows(samples: Sequence[tuple[float, int]], rate: float, from_s: float, to_s: float) -> bool:
    """Return whether the lag grows between two times; with too few samples for a trend it counts as stable.

    Args:
        samples: (second, lag in records).
    """
    line = trend([sample for sample in samples if from_s <= sample[0] <= to_s])
    return line is not None and line.grows(rate)


class Search:
    """The runs of one search; each is a separate load test."""

    def __init__(self, plan: LoadTestPlan, target: Target, bounds: Bounds, workers: int, say: Say) -> None:
        """Store the parameters; `probe` runs a test.

        Args:
            bounds: bounds, including one for the p99.
        """
        self.plan, self.target, self.bounds, self.workers, self._say = plan, target, bounds, workers, say
        self.results: dict[float, Result] = {}
        """Results by rate."""

    def probe(self, rate: float) -> Probe:
        """Run a load test at one rate."""
        directory = Path(self.plan.directory) / f"rate-{rate:.0f}"
        plan = replace(self.plan, rate=rate, directory=str(directory))
        result = launch.run(
            plan,
            self.target.settings,
            workers=self.workers,
            say=lambda text: self._say(f"{rate:,.0f}/s: {text}"),
        )
        self.results[rate] = result
        return assess(rate, result, self.bounds)

    @property
    def totals(self) -> tuple[int, int]:
        """Transactions acknowledged and alerts seen in all runs."""
        runs = self.results.values()
        return sum(run.acknowledged for run in runs), sum(run.alerts_seen for run in runs)


def assess(rate: float, result: Result, bounds: Bounds) -> Probe:
    """Return a run at a rate as a probe: whether it passed, and the reasons if it did not."""
    why = failures(result, bounds)
    begin = float(result.plan["warm_up_s"])
    end = begin + float(result.plan["for_s"])
    if grows(result.lag, rate, begin, end):
        why.append("lag: it grows during the load")
    return Probe(
        rate,
        not why,
        tuple(why),
        result.latency_ms.get("p99"),
        result.achieved_rate,
        generator_limited=any(line.startswith(OF_GENERATOR) for line in why),
    )
