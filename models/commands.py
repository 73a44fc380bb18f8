"""`fraud models`: train, list, promote, withdraw."""

import getpass
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from feature_store.catalogue import IDENTITIES, lacking
from models.errors import ModelError

app = typer.Typer(help="Train, list and roll out models.", no_args_is_help=True)

RUNNING_S = 60.0
"""A job that has written no progress for longer does not run: an idle one does every 10 seconds."""
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
    """Train on labelled history, judge on its newest quarter, register."""
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
        f"next: fraud models promote {trained.ref.name}/{trained.ref.version} "
        f"--threshold {quality.threshold:.6f} --max-count-5m 6"
    )


@app.command("list")
def list_command(
    tracking_uri: TrackingUri,
    name: Annotated[str, typer.Option(help="Of the registered model")] = "card-fraud",
) -> None:
    """List the registered versions, newest first."""
    from models.registry import versions

    found = versions(tracking_uri, name)
    if not found:
        raise ModelError(f"no model {name} is registered there; train one: fraud models train")
    for ref, metrics in found:
        measured = "  ".join(f"{metric} {value:.4f}" for metric, value in sorted(metrics.items()))
        typer.echo(
            f"{ref.name}/{ref.version}  digest {ref.digest[:12]}  features {len(ref.features)}  {measured}"
        )


BootstrapServers = Annotated[str, typer.Option(envvar="FRAUD_BOOTSTRAP_SERVERS", help="Kafka brokers")]
RolloutsTopic = Annotated[str, typer.Option(envvar="FRAUD_TOPICS__MODEL_ROLLOUTS")]
KafkaOption = Annotated[
    str, typer.Option(envvar="FRAUD_KAFKA", help="More client settings, as a JSON object")
]


@app.command("promote")
def promote_command(
    model: Annotated[str, typer.Argument(help="NAME/VERSION")],
    tracking_uri: TrackingUri,
    bootstrap_servers: BootstrapServers,
    threshold: Annotated[float, typer.Option(help="Scores from here on are alerts, 0 to 1")],
    max_count_5m: Annotated[int, typer.Option(help="More transactions in 5 minutes are an alert")] = 6,
    missing_profile: Annotated[
        str, typer.Option(help="Cards without profile: score, decided as any other; review, an alert")
    ] = "score",
    rollout_id: Annotated[str | None, typer.Option(help="Unique name; default: model, version, time")] = None,
    topic: RolloutsTopic = "model-rollouts",
    job_id: Annotated[
        str, typer.Option(envvar="FRAUD_JOB_ID", help="Of the job that is to use it")
    ] = "card-fraud",
    progress_topic: Annotated[str, typer.Option(envvar="FRAUD_TOPICS__JOB_PROGRESS")] = "job-progress",
    kafka: KafkaOption = "{}",
) -> None:
    """Check a model and let it decide from now on: exists, loads, right features, golden scores reproduce.

    Right are features that the running job computes, as its newest progress tells; without one, this release.
    """
    from models.policy import Policy
    from models.registry import find, verify
    from models.rollouts.events import installation
    from models.rollouts.publishing import publish
    from streaming_job.environment import client_settings

    client = client_settings(kafka)
    name, slash, version = model.rpartition("/")
    if not slash or not version.isdigit():
        raise ModelError(f"{model!r} is no NAME/VERSION; see fraud models list")
    policy = Policy(threshold, max_count_5m, missing_profile)
    ref = find(name, version, tracking_uri)
    computed = _computed_by(job_id, bootstrap_servers, progress_topic, client)
    if missing := lacking(ref.features, IDENTITIES if computed is None else computed):
        who = "this release" if computed is None else f"the release of the running job {job_id}"
        raise ModelError(
            f"{who} does not compute {', '.join(missing)}, which {model} looks at; start a release of the "
            "job that does, then promote again, or train a model without them"
        )
    with tempfile.TemporaryDirectory() as scratch:
        verify(ref, tracking_uri, Path(scratch))
    now = time.time_ns() // 1_000_000
    called = rollout_id or f"{name}-{version}-{now}"
    publish(installation(ref, policy, called, getpass.getuser(), now), bootstrap_servers, topic, client)
    typer.echo(f"rolled out {model} as {called}: threshold {threshold:g}, max_count_5m {max_count_5m}")


@app.command("withdraw")
def withdraw_command(
    rollout_id: Annotated[str, typer.Argument(help="As promote told it, and every alert does")],
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the log")],
    bootstrap_servers: BootstrapServers,
    from_the_beginning: Annotated[
        bool,
        typer.Option(
            "--from-the-beginning",
            help="Also for what arrived under it and is not decided yet: its files are lost",
        ),
    ] = False,
    topic: RolloutsTopic = "model-rollouts",
    kafka: KafkaOption = "{}",
) -> None:
    """Take a rollout back: from now on the last good one before it decides again."""
    from models.rollouts.events import withdrawal
    from models.rollouts.publishing import publish
    from streaming_job.environment import client_settings

    now = time.time_ns() // 1_000_000
    event = withdrawal(rollout_id, 3, getpass.getuser(), reason, now, from_the_beginning=from_the_beginning)
    publish([event], bootstrap_servers, topic, client_settings(kafka))
    typer.echo(f"withdrew {rollout_id}; if the job cannot do without it, a dead letter last_rollout says so")


def _computed_by(job_id: str, bootstrap_servers: str, topic: str, kafka: dict[str, str]) -> list[str] | None:
    """Features that the running job computes, name:version; None if none runs.

    Raises:
        ModelError: the brokers do not answer.
    """
    from confluent_kafka import KafkaError, KafkaException

    from streaming_job.log import topic_reader
    from streaming_job.progress.reader import newest_by_group

    reader = topic_reader.consumer(bootstrap_servers, kafka, "fraud-promote")
    try:
        told = newest_by_group(reader, topic, job_id, groups=[0]).get(0)
    except KafkaException as fault:
        if fault.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise ModelError(
            f"{topic} at {bootstrap_servers} cannot be read: {fault.args[0].str()}; check the settings"
        ) from fault
    finally:
        reader.close()
    if told is None or time.time() - told["written_at"] / 1000 > RUNNING_S:
        return None
    return list(told["features"])


def _table(path: Path):  # type: ignore[no-untyped-def]
    import pyarrow.lib
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.lib.ArrowInvalid) as error:
        raise ModelError(f"{path} cannot be read as parquet: {error}; check the file") from error
