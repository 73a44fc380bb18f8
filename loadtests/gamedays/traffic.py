"""Background traffic of a game day."""

from collections.abc import Callable

from loadtests.faults.installation import UNDISTURBED, Installation
from loadtests.faults.repeater import Repeater

EVERY_S = 0.25
EVENTS = 20
"""Transactions sent every EVERY_S."""


class Traffic(Repeater):
    """Sends simulated transactions all the time; a context manager."""

    def __init__(self, installed: Installation) -> None:
        super().__init__(self._send_some, EVERY_S)
        self._installed = installed
        self.disturbances: dict[str, float] = {}
        """Shares of disturbed transactions, by kind of disturbance."""
        self.also: Callable[[], None] | None = None
        """Called after each send; sends what the game day adds to this traffic."""

    def _send_some(self) -> None:
        self._installed.send(EVENTS, **(UNDISTURBED | self.disturbances))
        if self.also is not None:
            self.also()
