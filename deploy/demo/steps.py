"""The steps of a start, each with what it is doing now and how long it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from deploy.local.console import Progress

QUIET_S = 10.0
"""Without a terminal a long step says at most once in so long what it does."""


class Steps:
    """Tells the steps on a console: a spinner on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str) -> Iterator[Progress]:
        """One step; yields a function that takes what it is doing now."""
        begin = last = time.monotonic()
        status = Status(name, console=self._console) if self._console.is_terminal else None

        def doing(what: str) -> None:
            nonlocal last
            if status is not None:
                status.update(f"{name}: {what}")
            elif time.monotonic() - last >= QUIET_S:
                last = time.monotonic()
                self.say(f"  ... {name}: {what}")

        if status is not None:
            status.start()
        try:
            yield doing
        except BaseException:
            self.say(f"  [red]✗[/] {name}")
            raise
        finally:
            if status is not None:
                status.stop()
        self.say(f"  [green]✓[/] {name:<58} {time.monotonic() - begin:6.1f} s")

    def say(self, text: str) -> None:
        """A line between the steps."""
        self._console.print(text, soft_wrap=True)
