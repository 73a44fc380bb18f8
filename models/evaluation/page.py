"""The evaluation report as a self-contained HTML page, with plots as inline SVG."""

from typing import Any

from models import html_pages
from models.evaluation.report import HEADLINES
from models.html_pages import table
from models.plots import plot

TITLES = {
    "auc_roc": "AUC ROC",
    "average_precision": "Average precision",
    "card_precision_100": "Card precision at 100",
}


def page(report: dict[str, Any]) -> str:
    """Render a report as HTML."""
    folds = report["folds"]
    starts = [fold["test_start"] for fold in folds]
    plots = [
        _by_time(
            f"{TITLES[name]} by test window", starts, [fold[name] for fold in folds], report["mean"][name]
        )
        for name in HEADLINES
    ]
    days = [value for fold in folds for value in fold["card_precision_100_by_day"]]
    ticks = [
        fold["test_start"] if day == 0 else ""
        for fold in folds
        for day in range(len(fold["card_precision_100_by_day"]))
    ]
    plots.append(
        _by_time("Card precision at 100 by test day", ticks, days, report["mean"]["card_precision_100"])
    )
    parts = [_about(report), _folds(report), *plots, _scenarios(report["scenarios"])]
    return html_pages.page("Model evaluation", "\n".join(parts))


def _by_time(title: str, labels: list[str], values: list[float | None], mean: float | None) -> str:
    """Draw values in order of time, at equal distances."""
    last = len(values) - 1
    x = [number / last if last else 0.5 for number in range(len(values))]
    return plot(title, x, values, zip(x, labels, strict=True), mean=mean)


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
    return table(head, rows)


def _scenarios(scenarios: list[dict[str, Any]]) -> str:
    if not scenarios:
        return ""
    rows = [
        [row["scenario"], f"{row['frauds']:,}", f"{row['alerted']:,}", _number(row["recall"])]
        for row in scenarios
    ]
    return "<h2>By scenario, all test windows</h2>" + table(["scenario", "frauds", "alerted", "recall"], rows)


def _about(report: dict[str, Any]) -> str:
    options = [
        [key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)]
        for key, value in report.items()
        if key
        in ("algorithm", "train_days", "delay_days", "label_delay_days", "test_days", "alert_budget", "seed")
    ]
    options.append(["features", str(len(report.get("features", [])))])
    return table(["option", ""], options)
