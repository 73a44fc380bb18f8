"""Status output of long commands."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console

PAUSE_S = 2.0
"""Minimal time between successive log lines with the same first word, seconds."""


def stop_on_signals() -> None:
    """Let SIGTERM and SIGINT raise KeyboardInterrupt, so that the processes of a command are stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore SIGINT
        signal.signal(number, signal.default_int_handler)


@contextmanager
def saying(name: str) -> Iterator[Callable[[str], None]]:
    """Show the status on a terminal, or as lines in a log; SIGTERM and SIGINT raise KeyboardInterrupt.

    Args:
        name: name of the command.
    """
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
