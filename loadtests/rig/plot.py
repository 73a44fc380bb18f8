"""SVG plots of measurements: distributions of latencies."""

from collections.abc import Iterable, Sequence
from typing import Any

from models.plots import figure


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
