"""A tour of the demo: a thread that shows something while transactions stream, and prints what it does."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from deploy.demo.options import DemoError
from deploy.local.waiting import Patience
from feature_store.errors import FraudError
from service.background import Background

T = TypeVar("T")
POLL_S = 0.5
PATIENCE_S = 300.0
"""Longest wait for anything that a tour waits for."""


class Tour(Background):
    """Background thread of a tour."""

    def __init__(self, subject: str, print_line: Callable[[str], None]) -> None:
        """Prepare the tour without starting it.

        Args:
            subject: begins each line.
        """
        super().__init__("tour", patience_s=None)
        self.subject, self._print_line = subject, print_line
        self.fault: FraudError | None = None
        self.results: dict[str, Any] = {}
        """What it has shown, for the report."""

    def _run(self) -> None:
        try:
            self._show()
        except _StoppedError:
            self._say("the load ended before the tour was over")
        except FraudError as error:
            self.fault = error
        except Exception as error:
            self.fault = DemoError(f"the tour of the {self.subject} has failed: {error!r}; see the logs")

    def _show(self) -> None:
        raise NotImplementedError

    def _say(self, text: str) -> None:
        self._print_line(f"  {self.subject}: {text}")

    def _stream(self, seconds: float) -> None:
        """Let transactions stream."""
        until = time.monotonic() + seconds
        self._until(lambda: time.monotonic() > until, "end of a wait")

    def _until(self, condition: Callable[[], T | None], description: str, *, may_stop: bool = True) -> T:
        """Wait until a condition holds; return its value.

        Args:
            may_stop: whether the end of the load ends the wait, and the tour.
        """

        def pause(seconds: float) -> None:
            if self._stop.wait(seconds):
                raise _StoppedError

        patience = Patience(PATIENCE_S, POLL_S, pause=pause if may_stop else time.sleep)
        while not (result := condition()):
            patience.wait(lambda: DemoError(f"no {description} within {PATIENCE_S:.0f} s; see the logs"))
        return result


class _StoppedError(Exception):
    """The demo stopped the tour."""
