"""`fraud gameday`: provoke a symptom of the runbook on a real system, and see that the remedy helps."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from deploy.demo.environment import forget_callers_settings
from loadtests.faults.errors import FaultError
from loadtests.gamedays import page, run
from loadtests.gamedays.catalogue import DAYS
from loadtests.gamedays.day import PREFIX, Gameday
from loadtests.gamedays.journal import Journal
from loadtests.gamedays.scene import Scene, scene, servers
from streaming_job.contracts.topics import Topics

app = typer.Typer(add_completion=False)


@app.command()
def gameday(
    names: Annotated[list[str], typer.Argument(help="`list`, `all`, or names of game days")],
    write: Annotated[
        Path | None, typer.Option("--page", help="Put each log into this page (docs/gamedays.md)")
    ] = None,
) -> None:
    """Hold game days on an embedded stack of their own, one after another.

    Rules of Prometheus are evaluated where it is installed. The exit status is 1 if a symptom was not seen,
    a remedy did not help, or an audit found something.
    """
    if names == ["list"]:
        for day in DAYS.values():
            typer.echo(f"{day.name:<20} {day.symptom}")
        return
    forget_callers_settings()
    chosen = list(DAYS) if names == ["all"] else names
    days = sorted((_named(name) for name in chosen), key=list(DAYS.values()).index)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as home:
        hold_all(days, Path(home), write)


def _named(name: str) -> Gameday:
    if name not in DAYS:
        raise typer.BadParameter(f"there is no game day {name}; there are {', '.join(DAYS)}")
    return DAYS[name]


def hold_all(days: list[Gameday], home: Path, write: Path | None = None) -> None:
    """Hold game days on one stack and one job; after one that failed on a new job.

    Args:
        days: in this order.
        home: an empty directory.
        write: page that gets the logs.

    Raises:
        FaultError: one did not end as it has to; the others are held all the same.
    """
    failed: list[str] = []
    typer.echo(f"starting the servers in {home}")
    with servers(home / "stack") as endpoints:
        number = 0
        while days:
            typer.echo("starting job, sidecar and Prometheus")
            place = home / f"job-{number}"
            with scene(endpoints, home / "stack", place, _topics(number), Journal(typer.echo)) as found:
                days, why = _hold(days, found, write)
            failed += why
            number += 1
    if failed:
        raise FaultError("; ".join(failed))


def _topics(number: int) -> Topics:
    """Those of the stack first; then names of one's own, but for the profiles: there is one connector."""
    return Topics().renamed(lambda name: f"{name}-{number}", but=("profiles",)) if number else Topics()


def _hold(days: list[Gameday], found: Scene, write: Path | None) -> tuple[list[Gameday], list[str]]:
    """Hold some on one scene, to the first that fails; those that are left, and what went wrong."""
    for number, day in enumerate(days, 1):
        typer.echo(f"\n{day.name}: {day.symptom}")
        try:
            run.hold(day, found)
        except FaultError as fault:
            typer.echo(f"FAILED {day.name}: {fault}", err=True)
            return days[number:], [f"{day.name}: {fault}"]
        if write is not None:
            made = page.section(
                day, found.journal.lines, datetime.now(UTC).date(), found.seen_by.prometheus is not None
            )
            write.write_text(page.put(write.read_text(), day.name, made))
    return [], []
