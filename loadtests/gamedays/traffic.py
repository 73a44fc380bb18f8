"""Transactions that flow all the time while a game day is held."""

from collections.abc import Callable
from dataclasses import asdict

from loadtests.faults.installation import Installation
from loadtests.faults.repeated import Repeated
from loadtests.simulator.disturbances import Disturbances

EVERY_S = 0.25
EVENTS = 20
"""So many transactions every EVERY_S."""
CLEAN = asdict(Disturbances.none())


class Traffic(Repeated):
    """Simulated transactions; use as a context manager.

    Args:
        installed: where they go.
    """

    def __init__(self, installed: Installation) -> None:
        super().__init__(self._send, EVERY_S, "transactions are no longer sent")
        self._installed = installed
        self.disturbances: dict[str, float] = {}
        """Shares of the transactions to which something happens."""
        self.also: Callable[[], None] | None = None
        """Sends something else each time, as another sender would."""

    def _send(self) -> None:
        self._installed.send(EVENTS, **(CLEAN | self.disturbances))
        if self.also is not None:
            self.also()
