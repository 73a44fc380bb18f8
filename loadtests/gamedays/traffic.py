"""Transactions that flow all the time while a game day is held."""

from collections.abc import Callable

from loadtests.faults.installation import UNDISTURBED, Installation
from loadtests.faults.sender import Sender

EVERY_S = 0.25
EVENTS = 20
"""So many transactions every EVERY_S."""


class Traffic(Sender):
    """Simulated transactions; use as a context manager.

    Args:
        installed: where they go.
    """

    def __init__(self, installed: Installation) -> None:
        super().__init__(self._send_some, EVERY_S)
        self._installed = installed
        self.disturbances: dict[str, float] = {}
        """Shares of the transactions to which something happens."""
        self.also: Callable[[], None] | None = None
        """Sends something else each time, as another sender would."""

    def _send_some(self) -> None:
        self._installed.send(EVENTS, **(UNDISTURBED | self.disturbances))
        if self.also is not None:
            self.also()
