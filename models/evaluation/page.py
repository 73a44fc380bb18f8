"""The evaluation report as a self-contained HTML page, with plots as inline SVG."""

from html import escape
from typing import Any

from models.evaluation.report import HEADLINES

TITLES = {
    "auc_roc": "AUC ROC",
    "average_precision": "Average precision",
    "card_precision_100": "Card precision at 100",
}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 220, 56, 20, 34, 40

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .8rem; text-align: right }
th { border-bottom: 1px solid #999 } td:first-child, th:first-child { text-align: left }
svg { display: block; margin: 1rem 0; max-width: 100% } text { font: 12px system-ui, sans-serif }
.line { fill: none; stroke: #1f5fa8; stroke-width: 2 } .mean { stroke: #b04a1a; stroke-dasharray: 5 4 }
.grid { stroke: #ddd } .dot { fill: #1f5fa8 }
"""


def page(report: dict[str, Any]) -> str:
    """Render a report as HTML.

    Args:
        report: object that `report.report` returns.
    """
    folds = report["folds"]
    starts = [fold["test_start"] for fold in folds]
    plots = [
        _plot(f"{TITLES[name]} by test window", starts, [fold[name] for fold in folds], report["mean"][name])
        for name in HEADLINES
    ]
    days = [value for fold in folds for value in fold["card_precision_100_by_day"]]
    ticks = [
        fold["test_start"] if day == 0 else ""
        for fold in folds
        for day in range(len(fold["card_precision_100_by_day"]))
    ]
    plots.append(
        _plot("Card precision at 100 by test day", ticks, days, report["mean"]["card_precision_100"])
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Model evaluation</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>Model evaluation</h1>\n{_about(report)}\n"
        f"{_folds(report)}\n{''.join(plots)}\n{_scenarios(report['scenarios'])}\n</body></html>\n"
    )


def _plot(title: str, labels: list[str], values: list[float | None], mean: float | None) -> str:
    """Draw a line over equidistant points, with a dashed line for the mean; unknown values are gaps."""
    known_values = [value for value in values if value is not None]
    if not known_values:
        return f"<p>{escape(title)}: unknown</p>"
    top = min(1.0, max(known_values) * 1.15) or 1.0
    right = _WIDTH - _RIGHT
    wide, high = right - _LEFT, _HEIGHT - _TOP - _BOTTOM

    def x(number: int) -> float:
        return _LEFT + wide * (number / (len(values) - 1) if len(values) > 1 else 0.5)

    def y(value: float) -> float:
        return _TOP + high * (1 - value / top)

    parts = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for step in range(5):
        value = top * step / 4
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    run: list[str] = []
    for number, point in enumerate([*values, None]):
        if point is None:
            parts.append(f'<polyline class="line" points="{" ".join(run)}"/>' if run else "")
            run = []
            continue
        run.append(f"{x(number):.1f},{y(point):.1f}")
        parts.append(
            f'<circle class="dot" cx="{x(number):.1f}" cy="{y(point):.1f}" r="3">'
            f"<title>{point:.4f}</title></circle>"
        )
    for number, label in enumerate(labels):
        anchor = "start" if number == 0 and len(labels) > 1 else "middle"
        parts.append(
            f'<text x="{x(number):.1f}" y="{_HEIGHT - 14}" text-anchor="{anchor}">{escape(label)}</text>'
        )
    if mean is not None:
        parts.append(
            f'<line class="mean" x1="{_LEFT}" x2="{right}" y1="{y(mean):.1f}" y2="{y(mean):.1f}"/>'
            f'<text x="{right}" y="{y(mean) - 5:.1f}" text-anchor="end">mean {mean:.3f}</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>\n'


def _table(head: list[str], rows: list[list[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"


def _number(value: float | None, form: str = ".3f") -> str:
    return "unknown" if value is None else format(value, form)


def _folds(report: dict[str, Any]) -> str:
    head = ["test from", "transactions", "frauds", *TITLES.values(), "precision", "recall", "money saved"]
    metrics = (*HEADLINES, "precision", "recall", "saved_share")
    rows = [
        [
            fold["test_start"],
            f"{fold['n_test']:,}",
            f"{fold['n_fraud']:,}",
            *(_number(fold[name]) for name in metrics),
        ]
        for fold in report["folds"]
    ]
    for name in ("mean", "std"):
        rows.append([name, "", "", *(_number(report[name][key]) for key in metrics)])
    return _table(head, rows)


def _scenarios(scenarios: list[dict[str, Any]]) -> str:
    if not scenarios:
        return ""
    rows = [
        [row["scenario"], f"{row['frauds']:,}", f"{row['alerted']:,}", _number(row["recall"])]
        for row in scenarios
    ]
    return "<h2>By scenario, all test windows</h2>" + _table(
        ["scenario", "frauds", "alerted", "recall"], rows
    )


def _about(report: dict[str, Any]) -> str:
    options = [
        [key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)]
        for key, value in report.items()
        if key
        in ("algorithm", "train_days", "delay_days", "label_delay_days", "test_days", "alert_budget", "seed")
    ]
    options.append(["features", str(len(report.get("features", [])))])
    return _table(["option", ""], options)
