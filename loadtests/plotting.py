"""Axes for the plots of measurements, and latency distributions, as SVG."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

SIZE = (8.0, 3.0)
"""Inches."""
BLUE, RED, GREEN, ORANGE, GREY = "#1f5fa8", "#c0392b", "#2e8b57", "#d98e04", "#8a8a8a"
PERCENTILES = tuple(np.round(100 - np.logspace(2, -2, 41), 4).tolist())
"""Percentiles of a curve: ten for each tenfold decrease of the share above them."""
mpl.rcParams["svg.hashsalt"] = "fraud"  # the same figures give the same bytes


@contextmanager
def figure(x: str, y: str) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Yield axes with these labels, and a function that returns the SVG afterwards."""
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


def latency_curve(latencies_ms: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Return (percentile, ms) at PERCENTILES."""
    return list(zip(PERCENTILES, np.percentile(latencies_ms, PERCENTILES).tolist(), strict=True))


def add_latency_curve(axes: Any, curve: Sequence[tuple[float, float]], **look: Any) -> None:
    """Add a line of ms over the share of alerts that were slower, both axes logarithmic.

    Args:
        axes: axes of `figure`.
        curve: (percentile, ms); the maximum is left out.
        look: label, colour and style of the line.
    """
    points = [(1 - at / 100, ms) for at, ms in curve if at < 100]
    if not points:
        return
    axes.plot(*zip(*points, strict=True), **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if not axes.xaxis_inverted():
        axes.invert_xaxis()
