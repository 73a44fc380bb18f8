"""`fraud backtest`: another policy or model over the archive."""

import json
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from feature_store.output_files import require_place
from service.rollouts.options import PolicyFile, SimplePolicy, takes_simple_policy

app = typer.Typer()


@app.command()
@takes_simple_policy
def backtest(
    archive: Annotated[str, typer.Argument(help="Directory or URI of the archive (`fraud archive run`)")],
    simple_policy: SimplePolicy,
    model: Annotated[str, typer.Option(help="NAME/VERSION; default: the model that is live")] = "",
    policy: PolicyFile = None,
    days: Annotated[int, typer.Option(min=1, help="Calendar days (UTC) to compare, the last ones")] = 7,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="First day that is not compared any more; default: none"),
    ] = None,
    history_days: Annotated[
        int | None,
        typer.Option(min=0, help="Days before them that make the state; default: all that are archived"),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0.001, help="Alerts a day that your team can work on")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="JSON file to write")] = None,
    html: Annotated[Path | None, typer.Option(help="HTML page to write, with the sample")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes, which share the partitions; default: the cores")
    ] = None,
) -> None:
    """Decide the last days again with another policy or model, and compare with what was live.

    Without --policy the live policy is taken; --threshold, --max-count-5m and --missing-profile replace its
    values, or those of the file. See docs/backtest.md.

    Example: fraud backtest .fraud/archive --threshold 0.6 --days 7 --budget 500
    """
    from models.evaluation.report import write
    from models.rollouts import policy_file
    from service.backtests import page
    from service.backtests.running import report_of
    from streaming_job.backtest.request import Request

    require_place(report, html)
    request = Request(
        model,
        policy_file.load(policy)[0] if policy else None,
        {name: value for name, value in asdict(simple_policy).items() if value is not None},
        days,
        until.date() if until else None,
        history_days,
        budget,
    )
    content = report_of(archive, request, processes)
    if report:
        write(json.dumps(content, indent=2, allow_nan=False) + "\n", report)
    if html:
        write(page.page(content), html)
    _print(content)


def _print(content: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    from service.backtests import tables

    console = Console(file=sys.stdout)
    for sentence in tables.facts(content):
        console.print(sentence, highlight=False, markup=False)
    for shown in tables.tables(content):
        table = Table(title=shown.title, title_justify="left")
        for number, name in enumerate(shown.head):
            table.add_column(name, justify="right" if number else "left")
        for row in shown.rows:
            table.add_row(*row)
        console.print(table)
