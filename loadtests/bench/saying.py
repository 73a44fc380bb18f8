"""Tells what a long command is doing."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console

PAUSE_S = 2.0
"""Between two lines in a log."""


@contextmanager
def saying(name: str) -> Iterator[Callable[[str], None]]:
    """A status on a terminal, lines in a log; and what was started is stopped by SIGTERM and SIGINT.

    Args:
        name: of the command.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    console = Console(stderr=True)
    spoken = -PAUSE_S

    def say(doing: str) -> None:
        nonlocal spoken
        status.update(f"{name}: {doing}")
        # a file shows no status: it gets lines, and not too many
        if not console.is_terminal and time.monotonic() > spoken + PAUSE_S:
            spoken = time.monotonic()
            console.print(f"{datetime.now(UTC):%H:%M:%S} {doing}")

    with console.status(name) as status:
        yield say
