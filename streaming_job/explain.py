"""`fraud explain-card`: shows what the job's state contains about a card.

It reads the checkpoint as of the last epoch that Spark has committed. So it works while the job runs and
after it has ended, and does not disturb it.
"""

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from feature_store import spark_surroundings
from feature_store.errors import FraudError
from feature_store.kernels.hashing import hash_string
from feature_store.printable import printable
from feature_store.state.card_view import describe, find_card
from feature_store.state.group_state import DEFAULT_LATENESS_MS
from feature_store.utc import moment_of
from streaming_job.masking import masked
from streaming_job.runtime.checkpoint import Checkpoint
from streaming_job.runtime.checkpoint_errors import CheckpointError

log = logging.getLogger(__name__)
app = typer.Typer()
STATE = {
    "spark.sql.streaming.stateStore.providerClass":
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}  # fmt: skip
"""Settings of the state store, which are the job's."""
STDERR = 2
"""File descriptor of standard error, which a JVM inherits."""


class UnknownCardError(FraudError):
    """The state does not have the card.

    Check id and checkpoint.
    """


@app.command()
def explain_card(
    card: Annotated[str, typer.Argument(help="card_id")],
    checkpoint: Annotated[
        str, typer.Option(envvar="FRAUD_CHECKPOINT", help="The job's checkpoint: a directory or URI")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object")] = False,
    allowed_lateness_ms: Annotated[
        int, typer.Option(envvar="FRAUD_ALLOWED_LATENESS_MS", min=0, help="The job's setting of this name")
    ] = DEFAULT_LATENESS_MS,
) -> None:
    """Show what the job's state contains about a card: windows, profile versions, suspicious_count.

    Example: fraud explain-card card-000001 --checkpoint .fraud/checkpoint
    """
    view = look_up(card, checkpoint, allowed_lateness_ms)
    if as_json:
        typer.echo(json.dumps(view))
    else:
        _print(view)


def look_up(card: str, location: str, lateness_ms: int = DEFAULT_LATENESS_MS) -> dict[str, Any]:
    """Return what the state contains about a card (`card_view.describe`), with its card_id.

    Raises:
        CheckpointError: the checkpoint has no committed epoch, its file of fixed settings is damaged or
            missing, or Spark cannot read its state.
        UnknownCardError: the state contains neither transactions nor a profile of the card.
    """
    lo, hi = hash_string(card)
    with session() as spark:
        _ = spark.streams.active  # starts the coordinator of state stores, which the state reader needs
        fixed = Checkpoint(spark, location).fixed()
        if fixed is None:
            raise CheckpointError(f"{location} holds no epoch yet; give the checkpoint of a job that has run")
        group = fixed.layout.key_groups(fixed.key_groups).group_of(card)
        log.info("looking up card %s in key group %d", masked(card), group)
        view = find_card(_pieces(spark, location, group), lo, hi, lateness_ms)
    if view is None:
        raise UnknownCardError(
            f"card {masked(card)} is not in the job's state; check the id and the checkpoint"
        )
    return {"card_id": card, **describe(view)}


def _pieces(spark: SparkSession, location: str, group: int) -> Iterator[tuple[str, bytes]]:
    """Yield the pieces of a key group, which are in the state partition of the same number."""
    try:
        rows = (
            spark.read.format("statestore")
            .option("path", location)
            .option("stateVarName", "pieces")
            .load()
            .where(f"partition_id = {group}")
            .selectExpr("user_map_key.name", "user_map_value.blob")
        )
        for row in rows.toLocalIterator():
            yield row["name"], bytes(row["blob"])
    except PySparkException as fault:
        error_text = str(fault).splitlines()[0]
        raise CheckpointError(
            f"the state in {location} cannot be read ({error_text}); has an epoch been committed?"
        ) from fault


@contextmanager
def session() -> Iterator[SparkSession]:
    """Run a Spark session that reads the state's files; its sockets are on the loopback interface only.

    Raises:
        SparkRunError: its JVM does not start.
    """
    spark_surroundings.prepare(local=True)
    with _quiet_jvm():
        spark = spark_surroundings.start("local[1]", "card-fraud explain-card", STATE)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _quiet_jvm() -> Iterator[None]:
    """Let a JVM that starts meanwhile write its standard error to a file; show the file after an error.

    Before the first setting of Spark's log holds, Spark and the JVM write some lines about themselves.
    """
    kept = os.dup(STDERR)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), STDERR)
        try:
            yield
        except BaseException:
            file.seek(0)
            os.write(kept, file.read())
            raise
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)


def _print(view: dict[str, Any]) -> None:
    console = Console()
    console.print(f"[bold]{escape(printable(view['card_id']))}[/bold]{'  hot' if view['hot'] else ''}")
    kept, running, suspicious = view["kept_events"], view["running"], view["suspicious_count"]
    console.print(
        f"transactions {view['transactions']:,}, last at {_time(view['last_event_time'])}, "
        f"arrived {_time(view['last_arrival_time'])}"
    )
    console.print(
        f"events kept {kept['count']:,} ({kept['spikes']} spikes), from {_time(kept['oldest_event_time'])}"
    )
    if view["transactions"]:
        console.print(
            f"amounts: mean {running['mean_amount']:.2f}, deviation {running['deviation']:.2f}, "
            f"robust mean {running['robust_mean']:.2f}"
        )
    console.print(f"suspicious_count: {suspicious['day']} in 24 hours, {suspicious['total']} in total")
    if view["windows"]:
        names = list(next(iter(view["windows"].values())))
        table = Table("window", *names, title="as of the last event", title_justify="left")
        for window, values in view["windows"].items():
            table.add_row(window, *(f"{values[name]:,.2f}".removesuffix(".00") for name in names))
        console.print(table)
    table = Table("profile known from", "status", "home", "limit", "tier", "opened on")
    for version in view["profiles"]:
        since = _time(version["known_from"]) if version["known_from"] is not None else "the beginning"
        if "credit_limit" not in version:  # only its status counts, or not even that is known
            known = "unknown" if version.get("compacted") else "deleted" if version["deleted"] else None
            table.add_row(since, known or f"{version['status']}, the rest of the row is invalid")
        else:
            limit, tier = f"{version['credit_limit']:,.2f}", str(version["risk_tier"])
            table.add_row(
                since,
                *(escape(printable(str(version[name]))) for name in ("status", "home_country")),
                limit,
                tier,
                printable(str(version["opened_on"])),
            )
    console.print(table if view["profiles"] else "no profile")


def _time(ms: int | None) -> str:
    return "-" if ms is None else f"{moment_of(ms):%Y-%m-%d %H:%M:%S} UTC"
