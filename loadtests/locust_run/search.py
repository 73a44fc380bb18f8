"""Tries rates on a running job until the highest is known that keeps the latency's bound and a stable lag."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from loadtests.locust_run import lag_trend, launch, peak
from loadtests.locust_run.peak import Peak, Probe
from loadtests.locust_run.plan import Plan
from loadtests.locust_run.result import Result
from loadtests.locust_run.targets import Target
from loadtests.locust_run.verdict import Bounds, failures

OF_GENERATOR = ("generator's slip", "unsent", "achieved rate", "worker lost")
"""How failures begin that say nothing about the job."""
Say = Callable[[str], None]


class Search:
    """The runs of one search, each a load test of its own."""

    def __init__(self, plan: Plan, target: Target, bounds: Bounds, workers: int, say: Say) -> None:
        """Remember.

        Args:
            plan: of each probe, but for its rate and directory.
            target: job to try.
            bounds: with a bound of the p99.
            workers: of the generator.
            say: is told how far it is.
        """
        self.plan, self.target, self.bounds, self.workers, self._say = plan, target, bounds, workers, say
        self.results: dict[float, Result] = {}
        """By rate."""

    def find(self, first: float, most: float, precision: float, probes: int) -> Peak:
        """Search.

        Raises:
            LoadTestError: a run left no result, or the arguments leave nothing to search.
        """
        return peak.find(self.probe, first, most=most, precision=precision, probes=probes)

    def probe(self, rate: float) -> Probe:
        """Run at one rate."""
        directory = Path(self.plan.directory) / f"rate-{rate:.0f}"
        plan = replace(self.plan, rate=rate, directory=str(directory))
        result = launch.run(
            plan,
            self.target.settings,
            workers=self.workers,
            say=lambda text: self._say(f"{rate:,.0f}/s: {text}"),
        )
        self.results[rate] = result
        return judged(rate, result, self.bounds)

    @property
    def totals(self) -> tuple[int, int]:
        """Transactions acknowledged and alerts seen in all runs."""
        runs = self.results.values()
        return sum(run.acknowledged for run in runs), sum(run.alerts_seen for run in runs)


def judged(rate: float, result: Result, bounds: Bounds) -> Probe:
    """Whether a run at a rate passed, and why not."""
    why = failures(result, bounds)
    begin = float(result.plan["warm_up_s"])
    end = begin + float(result.plan["for_s"])
    if lag_trend.grows(result.lag, rate, begin, end):
        why.append("lag: it grows as long as the load lasts")
    return Probe(
        rate,
        not why,
        tuple(why),
        result.latency_ms.get("p99"),
        result.achieved_rate,
        generator_limited=any(line.startswith(OF_GENERATOR) for line in why),
    )
