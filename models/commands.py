"""`fraud models`: train, evaluate and list models. `fraud rollouts` rolls them out."""

from pathlib import Path
from typing import Annotated

import typer

from models.errors import ModelError
from models.evaluation.commands import evaluate_command

app = typer.Typer(
    help="Train, evaluate and list models; `fraud rollouts` rolls them out.", no_args_is_help=True
)

TrackingUri = Annotated[
    str, typer.Option(envvar="FRAUD_MLFLOW_TRACKING_URI", help="MLflow, e.g. sqlite:////directory/mlflow.db")
]


@app.command("train")
def train_command(
    tracking_uri: TrackingUri,
    transactions: Annotated[Path, typer.Option(help="Parquet, columns of the transaction contract")],
    labels: Annotated[Path | None, typer.Option(help="Parquet, columns of the chargeback contract")] = None,
    profiles: Annotated[Path | None, typer.Option(help="Parquet, columns of the profile contract")] = None,
    alert_budget: Annotated[float, typer.Option(help="Share of transactions that may become alerts")] = 0.005,
    iterations: Annotated[int, typer.Option(help="Number of trees")] = 100,
    leaves: Annotated[int, typer.Option(help="Leaves of each tree")] = 8,
    seed: Annotated[int, typer.Option(help="The same data and seed give the same model")] = 0,
    name: Annotated[str, typer.Option(help="Of the registered model")] = "card-fraud",
) -> None:
    """Train a model on labelled history, evaluate it on the newest quarter, and register it."""
    from models.pipeline import fit_and_register

    trained = fit_and_register(
        _table(transactions),
        tracking_uri,
        labels=_table(labels) if labels else None,
        profiles=_table(profiles) if profiles else None,
        alert_budget=alert_budget,
        iterations=iterations,
        leaves=leaves,
        seed=seed,
        name=name,
    )
    quality = trained.quality
    typer.echo(f"registered {trained.ref.name}/{trained.ref.version}  digest {trained.ref.digest}")
    typer.echo(f"trained on {trained.rows:,} transactions, {trained.frauds:,} frauds; on the hold-out:")
    typer.echo(f"  AUC ROC {quality.auc_roc:.3f}  average precision {quality.average_precision:.3f}")
    typer.echo(
        f"  threshold {quality.threshold:.6f}: alerts on {quality.alert_share:.2%}, "
        f"precision {quality.precision:.3f}, recall {quality.recall:.3f}"
    )
    typer.echo(
        f"next: fraud rollouts promote {trained.ref.name}/{trained.ref.version} "
        f"--threshold {quality.threshold:.6f} --max-count-5m 6"
    )


app.command("evaluate")(evaluate_command)


@app.command("list")
def list_command(
    tracking_uri: TrackingUri,
    name: Annotated[str, typer.Option(help="Of the registered model")] = "card-fraud",
) -> None:
    """List the registered versions, newest first."""
    from models.registry import versions

    registered = versions(tracking_uri, name)
    if not registered:
        raise ModelError(f"no model {name} is registered there; train one: fraud models train")
    for ref, metrics in registered:
        scores = "  ".join(f"{metric} {value:.4f}" for metric, value in sorted(metrics.items()))
        typer.echo(
            f"{ref.name}/{ref.version}  digest {ref.digest[:12]}  features {len(ref.features)}  {scores}"
        )


def _table(path: Path):  # type: ignore[no-untyped-def]
    import pyarrow.lib
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.lib.ArrowInvalid) as error:
        raise ModelError(f"{path} cannot be read as parquet: {error}; check the file") from error
