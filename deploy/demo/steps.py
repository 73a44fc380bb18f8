"""Progress output of the steps of a demo, each with its current action and its duration."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from deploy.local.console import Progress

QUIET_S = 10.0
"""Minimum interval between progress lines of a step, if the output is not a terminal."""


class Steps:
    """Progress of steps on a console: a spinner on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str) -> Iterator[Progress]:
        """Run a block as a step; yield a function that shows the current action."""
        begin = last = time.monotonic()
        status = Status(name, console=self._console) if self._console.is_terminal else None

        def doing(detail: str) -> None:
            nonlocal last
            if status is not None:
                status.update(f"{name}: {detail}")
            elif time.monotonic() - last >= QUIET_S:
                last = time.monotonic()
                self.print_line(f"  ... {name}: {detail}")

        if status is not None:
            status.start()
        try:
            yield doing
        except BaseException:
            self.print_line(f"  [red]✗[/] {name}")
            raise
        finally:
            if status is not None:
                status.stop()
        self.print_line(f"  [green]✓[/] {name:<58} {time.monotonic() - begin:6.1f} s")

    def print_line(self, text: str) -> None:
        """Print a line on the console."""
        self._console.print(text, soft_wrap=True)
