"""Progress as a function: what is being done now, one short line each."""

import sys
import time
from collections.abc import Callable

Progress = Callable[[str], None]
"""Receives one line, without a line end, whenever something slow begins or ends."""


def silent(message: str) -> None:
    """Say nothing: the default of library calls."""


def to_stderr() -> Progress:
    """A progress that writes to stderr, each line with the seconds since now."""
    begin = time.monotonic()

    def say(message: str) -> None:
        # one write: two threads must not share a line
        sys.stderr.write(f"{time.monotonic() - begin:6.1f}s  {message}\n")
        sys.stderr.flush()

    return say
