"""`fraud models evaluate`."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from feature_store.catalogue import DAY_MS
from feature_store.output_files import require_place
from feature_store.progress_bar import progress_bar
from feature_store.training.options import (
    DELAY_HELP,
    MOST_DELAY_DAYS,
    LabelFile,
    MerchantLabelFeatures,
    Transactions,
)
from models.algorithms import Learner
from models.options import USUAL, AlertBudget, takes_learner

MOST_DAYS = 3_650


@takes_learner
def evaluate_command(
    transactions: Transactions,
    train_start: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], help="First day to train on (UTC)")],
    report: Annotated[Path, typer.Option(help="JSON file to write")],
    train_days: Annotated[int, typer.Option(min=1, max=MOST_DAYS, help="Days to train on")] = 7,
    delay_days: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_DAYS, help="Days whose labels are not known yet, between training and test"
        ),
    ] = 7,
    test_days: Annotated[int, typer.Option(min=1, max=MOST_DAYS, help="Days to test on")] = 7,
    folds: Annotated[
        int,
        typer.Option(
            min=1, max=1_000, help="Number of folds; fold i, from 0, moves every date by 7 days x i"
        ),
    ] = 1,
    html: Annotated[Path | None, typer.Option(help="HTML file to write, with plots")] = None,
    labels: LabelFile = None,
    profiles: Annotated[Path | None, typer.Option(help="Parquet, the profile contract's columns")] = None,
    merchant_labels: MerchantLabelFeatures = False,
    label_delay_days: Annotated[
        float | None, typer.Option(min=0, max=MOST_DELAY_DAYS, help=f"{DELAY_HELP} Default: --delay-days")
    ] = None,
    alert_budget: AlertBudget = 0.005,
    learner: Learner = USUAL,
) -> None:
    """Train on some days and test on later ones, fold by fold, as the Fraud Detection Handbook does.

    Between training and test lie the days whose labels are not known yet. A test day excludes the cards that
    are known as compromised before it. See docs/models.md.

    Example: fraud models evaluate --transactions tx.parquet --train-start 2026-01-01 --report report.json
    """
    from feature_store.training.archived import files_of, read_profiles
    from feature_store.training.merchant_payments import MerchantLabels
    from feature_store.training.transaction_files import TransactionFiles
    from models.evaluation.history import Source
    from models.evaluation.page import page
    from models.evaluation.protocol import Windows
    from models.evaluation.report import digest, write
    from models.evaluation.report import report as report_of
    from models.evaluation.run import run

    require_place(report, html)
    label_delay = float(delay_days) if label_delay_days is None else label_delay_days
    files = TransactionFiles(transactions)
    merchants = MerchantLabels.of(files.labels(labels), int(label_delay * DAY_MS))
    source = Source(
        files,
        merchants.reports,
        read_profiles(profiles) if profiles else None,
        merchants.delay_ms if merchant_labels else None,
    )
    windows = Windows(train_start.date(), train_days, delay_days, test_days)
    with progress_bar() as bar:
        task = bar.add_task("features", total=files.rows)
        history, results = run(
            source, windows, folds, learner, alert_budget, lambda rows: bar.update(task, advance=rows)
        )
    about: dict[str, Any] = {
        **asdict(learner),
        "train_days": train_days,
        "delay_days": delay_days,
        "test_days": test_days,
        "alert_budget": alert_budget,
        "label_delay_days": label_delay,
        "merchant_labels": merchant_labels,
        "features": list(history.names),
        "not_decided": history.not_decided,
        "transactions_sha256": digest(files_of(transactions, "transactions")),
    }
    content = report_of(results, about)
    write(json.dumps(content, indent=2, allow_nan=False) + "\n", report)
    if html:
        write(page(content), html)
    _print_summary(content, report, html)


def _print_summary(content: dict[str, Any], report: Path, html: Path | None) -> None:
    from models.evaluation.report import HEADLINES

    for fold in [
        *content["folds"],
        *([{"test_start": "mean", **content["mean"]}] if len(content["folds"]) > 1 else []),
    ]:
        metrics = "  ".join(
            f"{name} {'unknown' if fold[name] is None else format(fold[name], '.3f')}" for name in HEADLINES
        )
        size = f"  ({fold['n_test']:,} transactions, {fold['n_fraud']:,} frauds)" if "n_test" in fold else ""
        typer.echo(f"{fold['test_start']:<10}  {metrics}{size}")
    typer.echo(f"report: {report}{f', {html}' if html else ''}")
