"""Line plots as inline SVG, for pages that need no other file."""

from collections.abc import Iterable, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 220, 56, 20, 34, 40
STYLE = """
svg { display: block; margin: 1rem 0; max-width: 100% } text { font: 12px system-ui, sans-serif }
.line { fill: none; stroke: #1f5fa8; stroke-width: 2 } .mean { stroke: #b04a1a; stroke-dasharray: 5 4 }
.grid { stroke: #ddd } .dot { fill: #1f5fa8 }
"""
"""CSS of the plots."""
_GRID_LINES = 5


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
        dots: whether to mark each point.
    """
    known_values = [value for value in y if value is not None]
    if not known_values:
        return f"<p>{escape(title)}: unknown</p>"
    top = min(1.0, max(known_values) * 1.15) or 1.0
    right = WIDTH - RIGHT

    def across(position: float) -> float:
        return LEFT + (right - LEFT) * position

    def down(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for step in range(_GRID_LINES):
        value = top * step / (_GRID_LINES - 1)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{down(value):.1f}" y2="{down(value):.1f}"/>'
            f'<text x="{LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    line: list[str] = []
    for position, point in [*zip(x, y, strict=True), (1.0, None)]:
        if point is None:
            parts.append(f'<polyline class="line" points="{" ".join(line)}"/>' if line else "")
            line = []
            continue
        line.append(f"{across(position):.1f},{down(point):.1f}")
        if dots:
            parts.append(
                f'<circle class="dot" cx="{across(position):.1f}" cy="{down(point):.1f}" r="3">'
                f"<title>{point:.4f}</title></circle>"
            )
    for position, text in ticks:
        anchor = "start" if position == 0 else "middle"
        parts.append(
            f'<text x="{across(position):.1f}" y="{HEIGHT - 14}" text-anchor="{anchor}">{escape(text)}</text>'
        )
    if mean is not None:
        parts.append(
            f'<line class="mean" x1="{LEFT}" x2="{right}" y1="{down(mean):.1f}" y2="{down(mean):.1f}"/>'
            f'<text x="{right}" y="{down(mean) - 5:.1f}" text-anchor="end">mean {mean:.3f}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">{"".join(parts)}</svg>\n'
