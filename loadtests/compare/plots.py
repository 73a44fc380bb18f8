"""Plots of a comparison, as SVG."""

from collections.abc import Sequence
from typing import Any

from loadtests.locust_run.plots import figure

COLOURS = {"ours": "#1f5fa8", "streams": "#c0392b", "quix": "#2e8b57"}


def latency(rows: Sequence[dict[str, Any]]) -> str:
    """Latency by percentile of each engine; broken lines: with the settings that it comes with."""
    with figure("share of alerts that were slower", "ms") as (axes, svg):
        for row in rows:
            points = [(1 - at / 100, ms) for at, ms in row["latency_curve"] if at < 100]
            axes.plot(*zip(*points, strict=True), label=row["title"], **_look(row))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.invert_xaxis()
        axes.legend(frameon=False, fontsize="small")
    return svg()


def throughput(rows: Sequence[dict[str, Any]]) -> str:
    """Transactions a second from a backlog."""
    with figure("transactions/s", "") as (axes, svg):
        shown = list(reversed(rows))
        bars = axes.barh(
            [row["title"] for row in shown],
            [row["backlog_per_s"] for row in shown],
            color=[_look(row)["color"] for row in shown],
        )
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set_xscale("log")
        axes.margins(x=0.15)
    return svg()


def _look(row: dict[str, Any]) -> dict[str, str]:
    kind, _, default = row["engine"].partition("-")
    return {"color": COLOURS[kind], "linestyle": "--" if default else "-"}
