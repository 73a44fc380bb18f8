"""Plots of the benchmarks' reports, as SVG."""

import re
from collections.abc import Mapping
from typing import Any

from loadtests.bench.scoring import CALIBRATION
from loadtests.bench.throughput import THROUGHPUT
from loadtests.rig.plot import latency_plot, line_plot
from models.plots import BLUE, GREEN, GREY, ORANGE, RED, figure

COLOURS = (BLUE, RED, GREEN, ORANGE, GREY)
KERNEL = re.compile(r"kernel, ([\d,]+) cards")

Reports = Mapping[str, dict[str, Any]]
"""Reports of `fraud bench` by the name that a plot shows."""


def plots(reports: Reports) -> dict[str, str]:
    """Plot the figures that people compare; reports without them are left out.

    The plots of latency and of cost have five colours: they leave out further reports.

    Returns:
        SVG by name: the latency distribution, throughput against calibration, cost against cards.
    """
    drawn = {
        "latency": _latency(reports),
        "throughput": _throughput(reports),
        "cards": _cost_by_cards(reports),
    }
    return {name: svg for name, svg in drawn.items() if svg}


def _latency(reports: Reports) -> str:
    curves = {name: report["latency_curve"] for name, report in reports.items() if "latency_curve" in report}
    if not curves:
        return ""
    looks = ({"label": name, "color": colour} for name, colour in zip(curves, COLOURS, strict=False))
    return latency_plot(zip(curves.values(), looks, strict=False), of="alerts")


def _throughput(reports: Reports) -> str:
    points = {
        name: (values[CALIBRATION], values[THROUGHPUT])
        for name, values in ((name, _values(report)) for name, report in reports.items())
        if {CALIBRATION, THROUGHPUT} <= values.keys()
    }
    if not points:
        return ""
    with figure("calibration, events/s of one process", "transactions/s of the job") as (axes, svg):
        for name, (calibration, throughput) in points.items():
            axes.plot(calibration, throughput, "o", color=BLUE)
            share = f"{name}: {throughput:,.0f}, {throughput / calibration:.2f}"
            axes.annotate(
                share, (calibration, throughput), xytext=(-8, -3), textcoords="offset points", ha="right"
            )
        axes.set_xlim(0, 1.1 * max(calibration for calibration, _ in points.values()))
        axes.set_ylim(0, 1.2 * max(throughput for _, throughput in points.values()))
    return svg()


def _cost_by_cards(reports: Reports) -> str:
    lines = {name: points for name, report in reports.items() if (points := _kernel_costs(report))}
    if not lines:
        return ""
    looks = (
        {"label": name, "color": colour, "marker": "o"} for name, colour in zip(lines, COLOURS, strict=False)
    )
    costs = zip(lines.values(), looks, strict=False)
    return line_plot("cards", "us of a core per transaction", costs, log="x")


def _kernel_costs(report: dict[str, Any]) -> list[tuple[int, float]]:
    """Return (cards, us per event) of the kernel."""
    found = ((KERNEL.fullmatch(name), value) for name, value in _values(report).items())
    return sorted((int(match[1].replace(",", "")), ns / 1000) for match, ns in found if match)


def _values(report: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in report["figures"]}
