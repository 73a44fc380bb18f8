"""`fraud bench`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtests.bench.measure import Figure, report, surroundings

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure; see docs/benchmarks.md.")

Report = Annotated[
    Path | None, typer.Option("--report", help="Write figures, versions and load there, as JSON")
]


@app.callback()
def _group() -> None:
    """Measure; see docs/benchmarks.md."""


@app.command()
def features(
    to: Report = None,
    cards: Annotated[list[int], typer.Option(help="Numbers of cards to run the kernel with")] = [  # noqa: B006
        1_000,
        100_000,
        5_000_000,
    ],
    rounds: Annotated[int, typer.Option(min=3, help="The median of so many counts")] = 15,
    transactions: Annotated[
        Path | None, typer.Option(help="Parquet file to make a training set of, timed")
    ] = None,
) -> None:
    """The feature engine: kernel, hot card, bytes a card, deltas, snapshots, rebuild, decoding."""
    from loadtests.bench import features as bench

    def measured() -> Iterator[Figure]:
        for number in cards:
            yield bench.kernel(number, rounds)
        yield bench.hot(rounds)
        yield from bench.persistence(20_000, rounds)
        yield bench.decoding(rounds)
        if transactions is not None:
            yield bench.training_set(transactions, 3)

    run("features", measured(), to)


def run(name: str, measured: Iterator[Figure], to: Path | None) -> None:
    """Measure, show, and write the report.

    Args:
        name: of the benchmark.
        measured: measures the next figure whenever asked.
        to: where the report goes, if anywhere.
    """
    before = surroundings()
    figures: list[Figure] = []
    console = Console(stderr=True)
    with console.status("measuring") as status:
        for figure in measured:
            figures.append(figure)
            status.update(f"measured: {figure.name}")
    told = report(" ".join(["fraud", *sys.argv[1:]]), before, figures)
    if to is not None:
        to.write_text(json.dumps(told, indent=2) + "\n")
    table = Table("", "median", "elapsed", "unit", "", title=f"fraud bench {name}", title_justify="left")
    for figure in figures:
        elapsed = "" if figure.elapsed is None else f"{figure.elapsed:,.4g}"
        table.add_row(figure.name, f"{figure.value:,.4g}", elapsed, figure.unit, figure.detail)
    Console().print(table)
    loads = (
        ", ".join(f"{load:.1f}" for load in told[when]) for when in ("load_average", "load_average_after")
    )
    typer.echo(f"load average before {next(loads)}; after {next(loads)}")
