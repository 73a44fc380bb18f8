"""SVG plots of measurements: lines, and distributions of latencies."""

from collections.abc import Iterable, Sequence
from typing import Any

from models.plots import GREY, figure

Line = tuple[Sequence[tuple[float, float]], dict[str, Any]]
"""(points, look): the points (x, y), and matplotlib's keywords for the line, such as label and color."""


def line_plot(
    x: str, y: str, lines: Iterable[Line], *, log: str = "", shaded_to: float = 0.0, inverted: bool = False
) -> str:
    """Return an SVG plot of lines, with a legend if they have labels.

    Args:
        y: label of the vertical axis, which begins at 0 unless it is logarithmic.
        log: logarithmic axes: "", "x", "y" or "xy".
        shaded_to: end of a shaded range that begins at 0.
        inverted: whether the horizontal axis runs from right to left.
    """
    with figure(x, y) as (axes, svg):
        for points, look in lines:
            if points:
                axes.plot(*zip(*points, strict=True), **look)
        if axes.lines and "x" in log:
            axes.set_xscale("log")
        if axes.lines and "y" in log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        if shaded_to:
            axes.axvspan(0, shaded_to, color=GREY, alpha=0.15, linewidth=0)
        if inverted:
            axes.invert_xaxis()
        if labels := axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize="small", ncols=min(len(labels), 3))
    return svg()


def latency_plot(lines: Iterable[Line], of: str) -> str:
    """Return an SVG plot of the latency over the share that was slower, both axes logarithmic.

    Args:
        lines: distributions, as points (percentile, ms), of which percentile 100 is not plotted.
        of: what was slower: alerts, transactions.
    """
    shares = (([(1 - at / 100, ms) for at, ms in curve if at < 100], look) for curve, look in lines)
    return line_plot(f"share of {of} that were slower", "ms", shares, log="xy", inverted=True)
