"""`fraud labels`: add and show labels of transactions."""

import getpass
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from feature_store.training.parquet_files import read_table
from streaming_job import environment
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.labels import ledger
from streaming_job.labels.ledger import Ledger, LedgerError

app = typer.Typer(no_args_is_help=True, help="Add and show labels: what became of transactions.")

REQUIRED = ("transaction_id", "card_id", "kind", "source", "occurred_at", "maturity")
COLUMNS = (*REQUIRED, "verdict", "reason", "event_time")


@app.command()
def add(
    card_id: Annotated[str, typer.Argument(help="The transaction's card")] = "",
    transaction_id: Annotated[str, typer.Argument(help="The transaction")] = "",
    kind: Annotated[str, typer.Option(help="early_warning, chargeback, refund, verdict or reversal")] = "",
    verdict: Annotated[str | None, typer.Option(help="For kind verdict: fraud or genuine")] = None,
    reason: Annotated[str | None, typer.Option(help="Why the verdict is genuine; see docs/labels.md")] = None,
    source: Annotated[str | None, typer.Option(help="Author of the label; default: the login name")] = None,
    event_time: Annotated[
        int | None, typer.Option(help="Event time of the transaction, ms since 1970-01-01 UTC, if known")
    ] = None,
    maturity: Annotated[str, typer.Option(help="preliminary or final")] = "final",
    file: Annotated[
        Path | None,
        typer.Option(help=f"Add all labels of this Parquet file or directory: columns {', '.join(COLUMNS)}"),
    ] = None,
) -> None:
    """Add one label, or those of a file: all, or none if one does not keep its contract.

    A transaction's last label to arrive counts.

    Example: fraud labels add card-1 tx-1 --kind verdict --verdict fraud
    """
    if file is not None:
        if card_id or transaction_id or kind:
            raise typer.BadParameter("give either one label or --file")
        typer.echo(f"{_ledger().add(rows(file))} labels were written")
        return
    if not (card_id and transaction_id and kind):
        raise typer.BadParameter("give CARD_ID, TRANSACTION_ID and --kind, or --file")
    row = {
        "transaction_id": transaction_id, "card_id": card_id, "kind": kind, "verdict": verdict,
        "reason": reason, "source": source or getpass.getuser(), "occurred_at": int(time.time() * 1000),
        "event_time": event_time, "maturity": maturity,
    }  # fmt: skip
    _ledger().add([row])
    typer.echo(f"label of {transaction_id}: {kind}{'' if verdict is None else f' {verdict}'}")


@app.command()
def show(card_id: Annotated[str, typer.Argument(help="A card")]) -> None:
    """Show a card's records on the topics of labels and of chargebacks, one JSON object a line.

    Example: fraud labels show card-1
    """
    for record in ledger.of_card(environment.settings(LetterSettings), card_id):
        typer.echo(json.dumps(record))


def _ledger() -> Ledger:
    settings = environment.settings(LetterSettings)
    return Ledger(settings.bootstrap_servers, settings.kafka, settings.topics.labels)


def rows(file: Path) -> list[dict[str, Any]]:
    """Return the labels of a Parquet file, or of all files below a directory, one row each.

    Raises:
        LedgerError: a required column is missing.
    """
    table = read_table(file, COLUMNS)
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise LedgerError(
            f"nothing was written; {file} has no column {', '.join(missing)}; see docs/labels.md"
        )
    result: list[dict[str, Any]] = table.to_pylist()
    return result
