"""Plots of a run and of a search for the peak, as SVG."""

from collections.abc import Sequence
from typing import Any

from loadtests.locust_run.peak import Probe
from loadtests.locust_run.result import Result
from loadtests.rig.plot import latency_plot
from models.plots import BLUE, GREY, RED, figure


def run_plots(result: Result) -> dict[str, str]:
    """Return a run's plots as SVG by title."""
    return {
        "Latency by percentile": _percentiles(result),
        "Latency over time": _over_time(result),
        "Rate over time": _rates(result),
        "Job's lag": _lag(result),
        "Generator's slip": _slip(result),
    }


def peak_plot(probes: Sequence[Probe], bound_ms: float) -> str:
    """Plot p99 by rate: passed and failed probes, and the bound."""
    with figure("offered, transactions/s", "p99, ms") as (axes, svg):
        for passed, colour, name in ((True, BLUE, "passed"), (False, RED, "failed")):
            points = sorted(
                (probe.rate, probe.p99_ms)
                for probe in probes
                if probe.passed == passed and probe.p99_ms is not None
            )
            if points:
                axes.plot(*zip(*points, strict=True), "o-" if passed else "x", color=colour, label=name)
        axes.axhline(bound_ms, color=GREY, linestyle="--", linewidth=1, label="bound")
        axes.set_yscale("log")
        axes.legend(frameon=False)
    return svg()


def _percentiles(result: Result) -> str:
    return latency_plot([(result.latency_curve, {"color": BLUE})], of="transactions")


def _over_time(result: Result) -> str:
    with figure("s", "ms") as (axes, svg):
        for name, colour in (("p50", BLUE), ("p99", RED), ("max", GREY)):
            _line(axes, result, name, colour)
        axes.set_yscale("log")
        axes.legend(frameon=False, ncols=3)
        _mark_warm_up(axes, result)
    return svg()


def _rates(result: Result) -> str:
    with figure("s", "transactions/s") as (axes, svg):
        _line(axes, result, "offered", GREY)
        _line(axes, result, "sent", BLUE)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, ncols=2)
        _mark_warm_up(axes, result)
    return svg()


def _lag(result: Result) -> str:
    with figure("s", "transactions") as (axes, svg):
        if result.lag:
            axes.plot(*zip(*result.lag, strict=True), color=BLUE)
        axes.set_ylim(bottom=0)
        _mark_warm_up(axes, result)
    return svg()


def _slip(result: Result) -> str:
    with figure("s", "p99 in each second, ms") as (axes, svg):
        _line(axes, result, "slip_p99", BLUE)
        axes.set_ylim(bottom=0)
        _mark_warm_up(axes, result)
    return svg()


def _line(axes: Any, result: Result, name: str, colour: str) -> None:
    points = [(row["at"], row[name]) for row in result.seconds if name in row]
    if points:
        axes.plot(*zip(*points, strict=True), color=colour, label=name)


def _mark_warm_up(axes: Any, result: Result) -> None:
    if warm_up := result.plan.get("warm_up_s", 0):
        axes.axvspan(0, warm_up, color=GREY, alpha=0.15, linewidth=0)
