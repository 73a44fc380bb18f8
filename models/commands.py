"""`fraud models`: train, evaluate and list models. `fraud rollouts` rolls them out."""

from pathlib import Path
from typing import Annotated

import typer

from feature_store.catalogue import DAY_MS
from feature_store.printable import printable
from feature_store.training.options import (
    DEFAULT_DELAY_DAYS,
    LabelDelayDays,
    LabelFile,
    MerchantLabelFeatures,
    Transactions,
)
from models.algorithms import Learner
from models.errors import ModelError
from models.evaluation.commands import evaluate_command
from models.options import USUAL, AlertBudget, TrackingUri, takes_learner

app = typer.Typer(
    help="Train, evaluate and list models; `fraud rollouts` rolls them out.", no_args_is_help=True
)


@app.command("train")
@takes_learner
def train_command(
    tracking_uri: TrackingUri,
    transactions: Transactions,
    labels: LabelFile = None,
    profiles: Annotated[
        Path | None, typer.Option(help="Parquet, the profile contract's columns; or an archive")
    ] = None,
    merchant_labels: MerchantLabelFeatures = False,
    label_delay_days: LabelDelayDays = DEFAULT_DELAY_DAYS,
    alert_budget: AlertBudget = 0.005,
    alert_cost: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1e9,
            help="Cost of an alert, in the currency of the amounts; if given, the threshold minimises the "
            "cost of alerts plus the amounts of missed frauds, and --alert-budget is ignored",
        ),
    ] = None,
    learner: Learner = USUAL,
    name: Annotated[str, typer.Option(help="Name of the registered model")] = "card-fraud",
) -> None:
    """Train a model on labelled history, evaluate it on the history's newest quarter, and register it.

    Example: fraud models train --transactions tx.parquet --tracking-uri sqlite:///mlflow.db
    """
    from feature_store.training.archived import files_of, read_profiles
    from feature_store.training.transaction_files import TransactionFiles
    from models.evaluation.report import digest
    from models.pipeline import fit_and_register

    label_delay_ms = int(label_delay_days * DAY_MS)
    inputs = {"transactions": transactions, "labels": labels, "profiles": profiles}
    files = TransactionFiles(transactions)
    label_table = files.labels(labels)
    trained = fit_and_register(
        files.table(),
        tracking_uri,
        labels=label_table,
        profiles=read_profiles(profiles) if profiles else None,
        merchant_labels=merchant_labels,
        label_delay_ms=label_delay_ms,
        alert_budget=alert_budget,
        alert_cost=alert_cost,
        learner=learner,
        sources={f"{name}_sha256": digest(files_of(path, name)) for name, path in inputs.items() if path},
        name=name,
    )
    quality = trained.quality
    typer.echo(f"registered {trained.ref}  digest {trained.ref.digest}")
    typer.echo(f"trained on {trained.rows:,} transactions, {trained.frauds:,} frauds; on the hold-out:")
    typer.echo(f"  AUC ROC {quality.auc_roc:.3f}  average precision {quality.average_precision:.3f}")
    typer.echo(
        f"  threshold {quality.threshold}: alerts on {quality.alert_share:.2%}, "
        f"precision {quality.precision:.3f}, recall {quality.recall:.3f}"
    )
    if merchant_labels:
        typer.echo(
            f"the model needs a job with FRAUD_MERCHANT_FACTS=true and FRAUD_LABEL_DELAY_MS={label_delay_ms}"
        )
    # in full: at a rounded threshold, any number of transactions may be alerts, or none
    typer.echo(
        f"next: fraud rollouts propose {trained.ref} --promote --threshold {quality.threshold} "
        "--max-count-5m 6"
    )


app.command("evaluate")(evaluate_command)


@app.command("list")
def list_command(
    tracking_uri: TrackingUri,
    name: Annotated[str, typer.Option(help="Name of the registered model")] = "card-fraud",
) -> None:
    """List the registered versions, newest first.

    Example: fraud models list --tracking-uri sqlite:///mlflow.db
    """
    from models.registry import versions

    registered = versions(tracking_uri, name)
    if not registered:
        raise ModelError(f"no model {name} is registered at this tracking URI; train one: fraud models train")
    for ref, metrics in registered:
        scores = "  ".join(f"{metric} {value:.4f}" for metric, value in sorted(metrics.items()))
        line = f"{ref}  digest {ref.digest[:12]}  features {len(ref.features)}  {scores}"
        typer.echo(printable(line))
