"""Plots of a comparison, as SVG."""

from collections.abc import Sequence
from typing import Any

from loadtests.rig.plot import latency_plot
from models.plots import BLUE, GREEN, GREY, RED, figure

COLOURS = {"ours": BLUE, "floor": GREY, "streams": RED, "quix": GREEN}
STYLES = {"5": ":", "25": "-.", "default": "--"}
"""Line of a variant, by the part of its name after the engine's."""


def latency(rows: Sequence[dict[str, Any]]) -> str:
    """Plot latency by percentile of each engine; variants of one engine have one colour."""
    lines = [(row["latency_curve"], {"label": row["title"], **_look(row)}) for row in rows]
    return latency_plot(lines, of="alerts")


def throughput(rows: Sequence[dict[str, Any]]) -> str:
    """Plot transactions per second from a backlog."""
    with figure("transactions/s", "") as (axes, svg):
        reversed_rows = list(reversed(rows))
        bars = axes.barh(
            [row["title"] for row in reversed_rows],
            [row["backlog_per_s"] for row in reversed_rows],
            color=[_look(row)["color"] for row in reversed_rows],
        )
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set_xscale("log")
        axes.margins(x=0.15)
    return svg()


def _look(row: dict[str, Any]) -> dict[str, str]:
    kind, _, variant = row["engine"].partition("-")
    return {"color": COLOURS[kind], "linestyle": STYLES.get(variant, "-")}
