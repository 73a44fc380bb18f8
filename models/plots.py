"""Line plots as inline SVG, for pages that need no other file."""

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
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


def plot(
    title: str,
    x: Sequence[float],
    y: Sequence[float | None],
    ticks: Iterable[tuple[float, str]],
    *,
    mean: float | None = None,
    dots: bool = True,
) -> str:
    """Draw a line through points, and a dashed line for the mean.

    If every value is None, return a paragraph with the title and "unknown" instead.

    Args:
        title: plain text.
        x: positions, 0 (left) to 1 (right).
        y: values from 0 to 1; None leaves a gap in the line.
        ticks: (position, text) of each label below the plot; positions as for `x`.
        mean: value of the dashed line; None: no such line.
    """
    known_values = [value for value in y if value is not None]
    if not known_values:
        return f"<p>{escape(title)}: unknown</p>"
    with figure("", "") as (axes, svg):
        axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
        points = [math.nan if value is None else value for value in y]
        axes.plot(x, points, color=BLUE, marker="o" if dots else "", markersize=4)
        if mean is not None:
            axes.axhline(mean, color=RED, linestyle="--", label=f"mean {mean:.3f}")
            axes.legend(frameon=False, fontsize="small")
        positions = dict(ticks)
        axes.set_xticks([*positions], [*positions.values()])
        axes.set_ylim(0, min(1.0, max(known_values) * 1.15) or 1.0)
    return svg()
