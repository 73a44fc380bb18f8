"""Plots of a run and of a search for the peak, as SVG."""

from collections.abc import Sequence
from functools import partial

from loadtests.locust_run.peak import Probe
from loadtests.locust_run.result import Result
from loadtests.rig.plot import Line, latency_plot, line_plot
from models.plots import BLUE, GREY, RED


def run_plots(result: Result) -> dict[str, str]:
    """Return a run's plots as SVG by title; the warm-up is shaded."""
    over_time = partial(line_plot, "s", shaded_to=result.plan.get("warm_up_s", 0))
    latencies = [_line(result, *line) for line in (("p50", BLUE), ("p99", RED), ("max", GREY))]
    return {
        "Latency by percentile": latency_plot([(result.latency_curve, {"color": BLUE})], of="transactions"),
        "Latency over time": over_time("ms", latencies, log="y"),
        "Rate over time": over_time(
            "transactions/s", [_line(result, "offered", GREY), _line(result, "sent", BLUE)]
        ),
        "Job's lag": over_time("transactions", [(result.lag, {"color": BLUE})]),
        "Generator's slip": over_time(
            "p99 in each second, ms", [(_line(result, "slip_p99", BLUE)[0], {"color": BLUE})]
        ),
    }


def peak_plot(probes: Sequence[Probe], bound_ms: float) -> str:
    """Plot p99 by rate: passed and failed probes, and the bound."""
    lines: list[Line] = []
    for passed, look in (
        (True, {"color": BLUE, "label": "passed", "marker": "o"}),
        (False, {"color": RED, "label": "failed", "marker": "x", "linestyle": ""}),
    ):
        chosen = [probe for probe in probes if probe.passed == passed]
        lines.append(
            (sorted((probe.rate, probe.p99_ms) for probe in chosen if probe.p99_ms is not None), look)
        )
    bound = [(0.0, bound_ms), (max((probe.rate for probe in probes), default=0.0), bound_ms)]
    lines.append((bound, {"color": GREY, "linestyle": "--", "linewidth": 1, "label": "bound"}))
    return line_plot("offered, transactions/s", "p99, ms", lines, log="y")


def _line(result: Result, name: str, colour: str) -> Line:
    points = [(row["at"], row[name]) for row in result.seconds if name in row]
    return points, {"color": colour, "label": name}
