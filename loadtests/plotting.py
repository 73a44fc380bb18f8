"""SVG plots of measurements: axes with labels, and distributions of latencies."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

SIZE = (8.0, 3.0)
"""Inches."""
BLUE, RED, GREEN, ORANGE, GREY = "#1f5fa8", "#c0392b", "#2e8b57", "#d98e04", "#8a8a8a"
mpl.rcParams["svg.hashsalt"] = "fraud"  # the same figures give the same bytes


@contextmanager
def figure(x: str, y: str) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Yield axes with these labels, and a function that returns the SVG once everything is plotted."""
    plot = Figure(figsize=SIZE, layout="constrained")
    canvas: Any = FigureCanvasSVG(plot)
    axes = plot.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)

    def svg() -> str:
        buffer = io.StringIO()
        canvas.print_svg(buffer, metadata={"Date": None})
        text = buffer.getvalue()
        return text[text.index("<svg") :]

    yield axes, svg


def latency_plot(lines: Iterable[tuple[Sequence[tuple[float, float]], dict[str, Any]]], of: str) -> str:
    """Return an SVG plot of the latency (ms) over the share that was slower, both axes logarithmic.

    Args:
        lines: (curve, look): the points (percentile, ms), of which percentile 100 is not plotted, and
            matplotlib's keywords for the line, such as label and color.
        of: what was slower: alerts, transactions.
    """
    with figure(f"share of {of} that were slower", "ms") as (axes, svg):
        for curve, look in lines:
            if points := [(1 - at / 100, ms) for at, ms in curve if at < 100]:
                axes.plot(*zip(*points, strict=True), **look)
        if axes.lines:
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.invert_xaxis()
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize="small")
    return svg()
