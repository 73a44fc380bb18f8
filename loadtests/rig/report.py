"""The frame of every measuring command: its status while it runs, and its report as a table and as JSON."""

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from feature_store.errors import FraudError

Say = Callable[[str], None]
"""Shows what a command is doing."""
PACKAGES = ("numpy", "numba", "pyarrow", "pyspark", "scikit-learn", "confluent-kafka")
PAUSE_S = 2.0
"""Minimal time between successive log lines with the same first word, seconds."""


class ReportError(FraudError):
    """The report of a command cannot be written.

    Give a writable place with room, and repeat the command.
    """


def stop_on_signals() -> None:
    """Let SIGTERM and SIGINT raise KeyboardInterrupt, so that the processes of a command are stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore SIGINT
        signal.signal(number, signal.default_int_handler)


@contextmanager
def saying(name: str) -> Iterator[Say]:
    """Show the status on a terminal, or as lines in a log; SIGTERM and SIGINT raise KeyboardInterrupt."""
    stop_on_signals()
    console = Console(stderr=True)
    last_line, last_word = -PAUSE_S, ""

    def say(doing: str) -> None:
        nonlocal last_line, last_word
        status.update(f"{name}: {doing}")
        # without a terminal the status becomes log lines, but not too many of one activity
        word, now = doing.partition(" ")[0], time.monotonic()
        if not console.is_terminal and (word != last_word or now > last_line + PAUSE_S):
            last_line, last_word = now, word
            console.print(f"{datetime.now(UTC):%H:%M:%S} {doing}", highlight=False)

    with console.status(name) as status:
        yield say


class Report:
    """The report of one command; made before the measurement, whose surroundings it notes."""

    def __init__(self) -> None:
        self.command = " ".join(["fraud", *sys.argv[1:]])
        self._before = {
            "command": self.command,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
            "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()},
            "load_average": list(os.getloadavg()),
        }

    def of(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return content as JSON values, with command, versions, machine, and load before and after."""
        return {**self._before, **content, "load_average_after": list(os.getloadavg())}


def write(to: Path | None, report: Mapping[str, Any], beside: Mapping[str, str] | None = None) -> None:
    """Write a report.

    Args:
        to: JSON file; None: nothing is written.
        beside: texts of files beside it, by what follows the stem of the file's name.

    Raises:
        ReportError: a file cannot be written.
    """
    if to is None:
        return
    write_text(to, json.dumps(report, indent=2) + "\n")
    for ending, text in (beside or {}).items():
        write_text(to.with_name(f"{to.stem}{ending}"), text)


def write_text(to: Path, text: str) -> None:
    """Write one file of a report.

    Raises:
        ReportError: it cannot be written.
    """
    try:
        to.write_text(text)
    except OSError as fault:
        raise ReportError(f"{to} cannot be written ({fault}); give a writable place with room") from fault


def show(title: str, rows: Iterable[Sequence[str]], head: Sequence[str] = ("", "")) -> None:
    """Print rows as a table, with a header unless all its names are empty."""
    table = Table(*head, title=title, title_justify="left", show_header=any(head))
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
