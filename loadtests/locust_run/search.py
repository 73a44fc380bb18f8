"""Search for the highest rate at which a running job keeps the latency's bound and a stable lag."""

from dataclasses import replace
from pathlib import Path

from loadtests.locust_run import lag_trend, launch, peak
from loadtests.locust_run.peak import Peak, Probe
from loadtests.locust_run.plan import LoadTestPlan
from loadtests.locust_run.result import Result
from loadtests.locust_run.targets import Target
from loadtests.locust_run.verdict import Bounds, failures
from loadtests.rig.report import Say

OF_GENERATOR = ("generator's slip", "unsent", "achieved rate", "worker lost")
"""Prefixes of the failure messages that concern the generator and say nothing about the job."""


class Search:
    """The runs of one search; each is a separate load test."""

    def __init__(self, plan: LoadTestPlan, target: Target, bounds: Bounds, workers: int, say: Say) -> None:
        """Store the parameters; `find` and `probe` run the tests.

        Args:
            bounds: bounds, including one for the p99.
        """
        self.plan, self.target, self.bounds, self.workers, self._say = plan, target, bounds, workers, say
        self.results: dict[float, Result] = {}
        """Results by rate."""

    def find(self, first: float, most: float, precision: float, probes: int) -> Peak:
        """Search for the peak."""
        return peak.find(self.probe, first, most=most, precision=precision, probes=probes)

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
    if lag_trend.grows(result.lag, rate, begin, end):
        why.append("lag: it grows during the load")
    return Probe(
        rate,
        not why,
        tuple(why),
        result.latency_ms.get("p99"),
        result.achieved_rate,
        generator_limited=any(line.startswith(OF_GENERATOR) for line in why),
    )
