"""`fraud capacity`, and the tables of docs/capacity.md."""

from typing import Annotated

import typer

from deploy.capacity import Need, need, walls
from deploy.page_tables import table, with_table

SIZES = ((10_000, 1e6), (100_000, 1e7), (1_000_000, 1e8), (50_000_000, 1e9))
"""Peak rate and cards of the page's examples."""
MOST = 1e12
"""More transactions per second, or cards, than any bank has."""
UNITS = ("", "k", "M", "G", "T", "P")


def capacity(
    rate: Annotated[float, typer.Option(min=1, max=MOST, help="Transactions per second at the peak.")],
    cards: Annotated[float, typer.Option(min=1, max=MOST, help="Number of cards.")],
) -> None:
    """Compute partitions, key groups, executors, memory, disks and brokers for a load, and the first limits.

    Example: fraud capacity --rate 100000 --cards 10000000
    """
    needed = need(rate, cards)
    for name, value in rows(needed):
        typer.echo(f"{name:42} {value}")
    typer.echo("\nlimits, the nearest first (share used):")
    for wall in walls(needed):
        typer.echo(f"{wall.reached:9.2f}  {wall.name}: {wall.remedy}")


def rows(needed: Need) -> list[tuple[str, str]]:
    """Return the lines of the answer, name and value."""
    return [
        ("key groups", f"{needed.groups:,}"),
        ("partitions of `transactions`", f"{needed.partitions:,}"),
        ("executors of one core", f"{needed.executors:,}"),
        ("cores in use at the peak", f"{needed.cores:,.1f}"),
        ("memory of an executor", _amount(needed.executor_memory, "B")),
        ("memory of all executors", _amount(needed.executor_memory * needed.executors, "B")),
        ("checkpoint", _amount(needed.checkpoint, "B")),
        ("log of 40 days, three replicas", _amount(needed.log, "B")),
        ("brokers", f"{needed.brokers:,}"),
        ("into the brokers, replicas included", _amount(needed.broker_in, "B/s")),
        ("first load of the profiles", f"{needed.profiles_first_load_s / 60:,.0f} min"),
        ("out of the brokers meanwhile", _amount(needed.profiles_out, "B/s")),
        ("progress records, at most", _amount(needed.progress, "B/s")),
        ("transaction markers, at most", f"{_amount(needed.markers_per_s, '')}/s"),
    ]


def page(text: str) -> str:
    """Return the text of docs/capacity.md with regenerated tables."""
    sizes = [need(rate, cards) for rate, cards in SIZES]
    head = [f"{_amount(size.rate, '')}/s, {_amount(size.cards, '')} cards" for size in sizes]
    columns = [rows(size) for size in sizes]
    lines = [
        [name, *(column[number][1] for column in columns)] for number, (name, _) in enumerate(columns[0])
    ]
    text = with_table(text, "What is needed", table(["", *head], lines))
    shares = [{wall.name: wall.reached for wall in walls(size)} for size in sizes]
    limits = [
        [wall.name, *(f"{share[wall.name]:.2g}" for share in shares), wall.remedy]
        for wall in walls(sizes[-1])
    ]
    return with_table(text, "Limits", table(["share used of", *head, "what removes it"], limits))


def _amount(value: float, unit: str) -> str:
    """Return a value with three digits and a decimal prefix."""
    step = 0
    while value >= 999.5 and step < len(UNITS) - 1:
        value, step = value / 1_000, step + 1
    return f"{value:.3g} {UNITS[step]}{unit}".strip()
