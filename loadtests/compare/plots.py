"""Plots of a comparison, as SVG."""

from collections.abc import Sequence
from typing import Any

from loadtests.rig.plot import latency_plot
from models.plots import BLUE, GREEN, RED, figure

COLOURS = {"ours": BLUE, "streams": RED, "quix": GREEN}


def latency(rows: Sequence[dict[str, Any]]) -> str:
    """Plot latency by percentile of each engine; the lines of `-default` variants are dashed."""
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
    kind, _, default = row["engine"].partition("-")
    return {"color": COLOURS[kind], "linestyle": "--" if default else "-"}
