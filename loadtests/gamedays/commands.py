"""`fraud gameday`: provokes symptoms of the runbook on a real system and checks that the remedies help."""

import tempfile
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from deploy.demo.environment import forget_callers_settings
from deploy.local.errors import ProcessError
from loadtests.faults.errors import FaultError
from loadtests.gamedays import page, run
from loadtests.gamedays.catalogue import DAYS
from loadtests.gamedays.day import Gameday
from loadtests.gamedays.journal import Journal
from loadtests.gamedays.scene import Scene, scene, servers
from loadtests.rig.report import stop_on_signals
from streaming_job.contracts.topics import Topics

app = typer.Typer()


@app.command()
def gameday(
    names: Annotated[list[str], typer.Argument(help="`list`, `all`, or names of game days")],
    write: Annotated[
        Path | None, typer.Option("--page", help="Write each result into this page (docs/measurements.md)")
    ] = None,
) -> None:
    """Run game days on an embedded stack of their own, one after another.

    Alerting rules are evaluated if Prometheus is installed. The exit status is 1 if a symptom was not seen, a
    remedy did not help, or an audit found a difference.

    Example: fraud gameday list
    """
    if names == ["list"]:
        for day in DAYS.values():
            typer.echo(f"{day.name:<20} {day.symptom}")
            typer.echo(textwrap.indent(textwrap.fill(page.plan(day), width=100), "    "))
        return
    forget_callers_settings()
    chosen = list(DAYS) if names == ["all"] else names
    days = sorted((_named(name) for name in chosen), key=list(DAYS.values()).index)
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="fraud-gameday-") as home:
        run_all(days, Path(home), write)


def _named(name: str) -> Gameday:
    if name not in DAYS:
        raise typer.BadParameter(f"there is no game day {name}; choose from {', '.join(DAYS)}")
    return DAYS[name]


def run_all(days: list[Gameday], home: Path, write: Path | None = None) -> None:
    """Run game days on one stack and one job; after a failure the rest run on a new job.

    Args:
        home: an empty directory.

    Raises:
        FaultError: a game day failed; the others are run all the same.
    """
    failed: list[str] = []
    typer.echo(f"starting the servers in {home}")
    with servers(home / "stack") as endpoints:
        number = 0
        while days:
            typer.echo("starting job, sidecar and Prometheus")
            directory = home / f"job-{number}"
            with scene(endpoints, home / "stack", directory, _topics(number), Journal(typer.echo)) as system:
                days, failures = _run_until_failure(days, system, write)
            failed += failures
            number += 1
    if failed:
        raise FaultError("; ".join(failed))


def _topics(number: int) -> Topics:
    """Return a job's topics: default names for job 0, else new names; the jobs share the profiles' topic."""
    return Topics().renamed(lambda name: f"{name}-{number}", but=("profiles",)) if number else Topics()


def _run_until_failure(
    days: list[Gameday], system: Scene, write: Path | None
) -> tuple[list[Gameday], list[str]]:
    """Run game days on one system up to the first failure; returns the remaining ones and the failure."""
    for number, day in enumerate(days, 1):
        typer.echo(f"\n{day.name}: {day.symptom}")
        try:
            run.run(day, system)
        except (FaultError, ProcessError) as fault:
            typer.echo(f"FAILED {day.name}: {fault}", err=True)
            return days[number:], [f"{day.name}: {fault}"]
        if write is not None:
            row = page.row(
                day, system.journal.lines, datetime.now(UTC).date(), system.watchers.prometheus is not None
            )
            write.write_text(page.put(write.read_text(), day.name, row))
    return [], []
