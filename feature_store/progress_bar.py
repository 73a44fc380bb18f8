"""The progress bar of long commands."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


def progress_bar(console: Console | None = None) -> Progress:
    """Return a bar that disappears at the end; default: on standard error."""
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    return Progress(*columns, console=console or Console(stderr=True), transient=True)
