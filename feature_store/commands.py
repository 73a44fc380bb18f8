"""`fraud features`: point-in-time training sets."""

from pathlib import Path
from typing import Annotated

import typer

from feature_store.catalogue import DAY_MS
from feature_store.output_files import OutputError
from feature_store.progress_bar import progress_bar
from feature_store.state.group_state import DEFAULT_LATENESS_MS
from feature_store.training.archived import read_profiles
from feature_store.training.labels import Labels
from feature_store.training.merchant_payments import MerchantLabels
from feature_store.training.options import (
    DEFAULT_DELAY_DAYS,
    LabelDelayDays,
    LabelFile,
    MerchantLabelFeatures,
    Transactions,
)
from feature_store.training.training_run import Summary, Task, compute
from feature_store.training.training_set import DEFAULT_SKEW_MS
from feature_store.training.transaction_files import TransactionFiles

SPARK_FROM_ROWS = 20_000_000
"""Number of transactions from which Spark is the default; one process would take minutes."""

app = typer.Typer()


@app.command()
def features(
    transactions: Transactions,
    output: Annotated[Path, typer.Option(help="Parquet file to write; on Spark, a directory of such files")],
    profiles: Annotated[
        Path | None,
        typer.Option(
            help="Parquet with the profile contract's columns and, optionally, arrival_time: "
            "when a row becomes visible, ms; or an archive"
        ),
    ] = None,
    labels: LabelFile = None,
    merchant_labels: MerchantLabelFeatures = False,
    label_delay_days: LabelDelayDays = DEFAULT_DELAY_DAYS,
    spark: Annotated[
        bool | None,
        typer.Option("--spark/--in-process", help=f"Default: Spark from {SPARK_FROM_ROWS:,} rows on"),
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master")] = "local[*]",
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists")] = False,
    allowed_lateness_ms: Annotated[
        int, typer.Option(envvar="FRAUD_ALLOWED_LATENESS_MS", min=0, help="Give the job's value")
    ] = DEFAULT_LATENESS_MS,
    allowed_skew_ms: Annotated[
        int, typer.Option(envvar="FRAUD_ALLOWED_SKEW_MS", min=0, help="Give the job's value")
    ] = DEFAULT_SKEW_MS,
) -> None:
    """Compute the features of each accepted transaction as of its arrival, bit for bit as the stream does.

    Rows are processed in order of arrival_time (of event_time if there is no such column); rows with equal
    times keep the file's order.

    Example: fraud features --transactions tx.parquet --output features.parquet
    """
    if output.exists() and not force:
        raise OutputError(f"{output} exists; give another name, or --force to replace it")
    if not output.parent.is_dir():
        raise OutputError(f"no directory {output.parent}; make it first")
    files = TransactionFiles(transactions)
    label_table = files.labels(labels)
    task = Task(
        files,
        read_profiles(profiles) if profiles else None,
        None if label_table is None else Labels(label_table),
        allowed_lateness_ms,
        allowed_skew_ms,
        MerchantLabels.of(label_table, int(label_delay_days * DAY_MS)) if merchant_labels else None,
    )
    on_spark = files.rows >= SPARK_FROM_ROWS if spark is None else spark
    summary = _on_spark(task, output, master) if on_spark else _in_process(task, output)
    _print_summary(summary, output)
    if task.labels is not None:
        _print_matches(task.labels, summary, on_spark=on_spark)


def _in_process(task: Task, output: Path) -> Summary:
    with progress_bar() as bar:
        task_id = bar.add_task("transactions", total=task.transactions.rows * task.passes)
        return compute(task, output, lambda rows: bar.update(task_id, advance=rows))


def _on_spark(task: Task, output: Path, master: str) -> Summary:
    from feature_store import spark_surroundings

    spark_surroundings.prepare(local=master.startswith("local"))
    from feature_store.training.spark_training_set import compute as compute_on_spark

    with progress_bar() as bar:
        task_id = bar.add_task("Spark tasks", total=None)
        return compute_on_spark(
            task, output, master, lambda done, total: bar.update(task_id, completed=done, total=total or None)
        )


def _print_summary(summary: Summary, output: Path) -> None:
    if summary.sorted_first:
        typer.echo("note: the rows were not in order of arrival; they were sorted first", err=True)
    counts = {name: count for name, count in summary.outcomes.items() if count and name != "accepted"}
    excluded = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    typer.echo(
        f"{output}: {summary.rows:,} rows{f' (of these without features: {excluded})' if excluded else ''}"
    )


def _print_matches(labels: Labels, summary: Summary, *, on_spark: bool) -> None:
    """Say how many labels are of none of the transactions; on Spark only whether all may be."""
    matches = labels.matches
    missing = matches.labelled - matches.found
    if on_spark:  # the labels were looked up in other processes
        if matches.labelled and not summary.frauds:
            typer.echo("note: no row is labelled as fraud; compare the ids in both files", err=True)
    elif missing:
        typer.echo(
            f"note: {missing:,} of {matches.labelled:,} labelled transactions are not in the transactions; "
            "if they should be, compare card_id and transaction_id of both files",
            err=True,
        )
