"""Progress callbacks: functions that receive one short line per action."""

import sys
import time
from collections.abc import Callable

Progress = Callable[[str], None]
"""Function that receives one line, without a line end, whenever something slow begins or ends."""


def silent(message: str) -> None:
    """Ignore the message: the default of library calls."""


def to_stderr() -> Progress:
    """Return a progress callback that writes to stderr, each line with the seconds since this call."""
    begin = time.monotonic()

    def write_line(message: str) -> None:
        # one write: two threads must not share a line
        sys.stderr.write(f"{time.monotonic() - begin:6.1f}s  {message}\n")
        sys.stderr.flush()

    return write_line
