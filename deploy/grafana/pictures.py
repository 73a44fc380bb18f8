"""Pictures of the dashboards, drawn from their panels' queries: for readers without a Grafana.

    python -m deploy.grafana.pictures http://127.0.0.1:9090 docs/images

Layout and titles are those of the panels, and so are the units and thresholds of time series; everything else
may differ from Grafana. Panels without data are listed, and the exit status is then 1.
"""

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from deploy.grafana.answers import STEPS, Prometheus, Series, filled, legend
from deploy.grafana.panels import DASHBOARDS, WIDTH, Dashboard

JOB = "card-fraud"
"""Name of the scrape job."""
MINUTES = 10.0
STEP_MINUTES = MINUTES / STEPS
CELL = 0.46, 0.28
"""Width and height of a cell of Grafana's grid, inches."""
MARGIN = 0.5, 0.3, 0.15, 0.3
"""Left, bottom, right and top of a panel's axes, inches."""
LEGENDS = 6
"""Maximum number of lines in a legend."""
LINES = 12
"""Maximum number of lines in a text panel."""
COLOURS = 64
mpl.rcParams.update(
    {"font.size": 6, "axes.titlesize": 7, "axes.spines.top": False, "axes.spines.right": False}
)


@dataclass(frozen=True)
class PanelAnswers:
    """A panel as in the dashboard's JSON, and the answers to its queries."""

    panel: dict[str, Any]
    series: list[tuple[str, Series]]
    """(legend, series)."""
    end_s: float
    """End of range queries and time of instant ones, seconds since 1970-01-01 UTC."""

    @property
    def has_data(self) -> bool:
        """Whether a query returned a number."""
        return any(not math.isnan(value) for _, series in self.series for _, value in series.points)

    def minutes(self, series: Series) -> list[float]:
        """Return the times of a series in minutes relative to the end: 0 or less."""
        return [(at - self.end_s) / 60 for at, _ in series.points]


def answered(dashboard: Dashboard, prometheus: Prometheus, end_s: float) -> list[PanelAnswers]:
    """Query all panels of a dashboard.

    Args:
        end_s: end of range queries, which span MINUTES, and time of instant ones; seconds since 1970-01-01
            UTC.
    """
    found = []
    for panel in dashboard.to_json()["panels"]:
        series = []
        for target in panel.get("targets", ()):
            query = filled(target["expr"], JOB)
            if target["instant"]:
                answers = prometheus.instant(query, end_s)
            else:
                answers = prometheus.range(query, end_s - 60 * MINUTES, end_s)
            series += [(legend(target["legendFormat"], answer), answer) for answer in answers]
        found.append(PanelAnswers(panel, series, end_s))
    return found


def draw(title: str, panels: list[PanelAnswers], path: Path) -> None:
    """Draw the panels of a dashboard into a PNG file."""
    rows = max(item.panel["gridPos"]["y"] + item.panel["gridPos"]["h"] for item in panels)
    width, height = CELL[0] * WIDTH, CELL[1] * rows + MARGIN[3]
    ranges = [item.minutes(series) for item in panels for _, series in item.series]
    begin = min((times[0] for times in ranges if times), default=-MINUTES)
    figure = Figure(figsize=(width, height), dpi=110)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.005, 1 - 0.2 / height, title, fontsize=11, weight="bold", va="center")
    for item in panels:
        place = item.panel["gridPos"]
        top = height - MARGIN[3] - CELL[1] * place["y"]
        if item.panel["type"] == "row":
            y = (top - CELL[1] / 2) / height
            figure.text(0.005, y, item.panel["title"], fontsize=9, weight="bold", va="center")
            continue
        left, bottom, right, above = MARGIN
        box = (
            (CELL[0] * place["x"] + left) / width,
            (top - CELL[1] * place["h"] + bottom) / height,
            (CELL[0] * place["w"] - left - right) / width,
            (CELL[1] * place["h"] - bottom - above) / height,
        )
        axes = figure.add_axes(box)
        axes.set_title(item.panel["title"], loc="left", weight="bold")
        KINDS[item.panel["type"]](axes, item)
        if item.panel["type"] in ("timeseries", "state-timeline"):
            axes.set_xlim(min(begin, -STEP_MINUTES), 0)
    canvas.draw()  # type: ignore[no-untyped-call]
    # few colours make the file a quarter of the size
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
    Image.fromarray(pixels).quantize(COLOURS).save(path, optimize=True)


def _lines(axes: Axes, item: PanelAnswers) -> None:
    defaults = item.panel["fieldConfig"]["defaults"]
    is_stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    names = [name for name, _ in item.series]
    if is_stacked and item.series:
        times = sorted({at for _, series in item.series for at, _ in series.points})
        heights = [[dict(series.points).get(at, 0.0) for at in times] for _, series in item.series]
        axes.stackplot([(at - item.end_s) / 60 for at in times], *heights, labels=names, alpha=0.6)
    else:
        for name, series in item.series:
            values = [value for _, value in series.points]
            axes.plot(item.minutes(series), values, linewidth=0.9, label=name)
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is not None:
            axes.axhline(step["value"], color="red", linewidth=0.5, linestyle="--")
    axes.set_ylabel(defaults["unit"])
    axes.set_ylim(bottom=0)
    if names:
        axes.legend(*_first(axes), loc="upper left", fontsize=5, frameon=False)


def _first(axes: Axes) -> tuple[list[Any], list[str]]:
    handles, names = axes.get_legend_handles_labels()
    more = len(names) - LEGENDS
    shown = names[:LEGENDS]
    return handles[:LEGENDS], [*shown[:-1], f"{shown[-1]}, and {more} more"] if more > 0 else shown


def _states(axes: Axes, item: PanelAnswers) -> None:
    for row, (name, series) in enumerate(item.series):
        for (_, value), start in zip(series.points, item.minutes(series), strict=True):
            colour = "tab:green" if value else "lightgrey"
            axes.broken_barh([(start, STEP_MINUTES)], (row + 0.1, 0.8), color=colour, alpha=0.5, linewidth=0)
        axes.text(0.01, row + 0.5, name, transform=axes.get_yaxis_transform(), va="center", fontsize=5)
    axes.set_yticks([])


def _heatmap(axes: Axes, item: PanelAnswers) -> None:
    by_bound = sorted((float(series.labels["le"]), series.points) for _, series in item.series)
    below: dict[float, float] = {}
    grid, bounds = [], []
    for bound, points in by_bound:
        counts = dict(points)
        grid.append([max(0.0, counts[at] - below.get(at, 0.0)) for at, _ in by_bound[0][1] if at in counts])
        bounds.append(f"{bound:g}")
        below = counts
    width = min((len(row) for row in grid), default=0)
    axes.imshow([row[:width] for row in grid], aspect="auto", origin="lower", cmap="Oranges")
    axes.set_yticks(range(len(bounds)), bounds, fontsize=4.5)
    axes.set_xticks([])


def _text(axes: Axes, item: PanelAnswers) -> None:
    is_stat = item.panel["type"] == "stat"
    lines = [
        f"{name}  {series.points[-1][1]:,.4g}".strip() if is_stat else legend("__auto", series)
        for name, series in item.series
    ]
    axes.axis("off")
    axes.text(0, 1, "\n".join(lines[:LINES]), va="top", fontsize=11 if is_stat else 5, family="monospace")


KINDS = {
    "timeseries": _lines, "state-timeline": _states, "heatmap": _heatmap, "stat": _text, "table": _text,
}  # fmt: skip


def draw_all(url: str, directory: Path) -> list[str]:
    """Draw every dashboard; return the panels without data.

    Args:
        url: address of a Prometheus that scrapes the sidecar and the continuous audit.
    """
    prometheus, end_s, empty = Prometheus(url), time.time(), []
    for dashboard in DASHBOARDS:
        panels = answered(dashboard, prometheus, end_s)
        draw(dashboard.title, panels, directory / f"{dashboard.uid}.png")
        empty += [
            f"{dashboard.uid}: {item.panel['title']}"
            for item in panels
            if item.panel["type"] != "row" and not item.has_data
        ]
    return empty


if __name__ == "__main__":
    without_data = draw_all(sys.argv[1], Path(sys.argv[2]))
    for name in without_data:
        print(f"no data: {name}", file=sys.stderr)
    sys.exit(1 if without_data else 0)
