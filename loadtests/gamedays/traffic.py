"""Transactions of a game day: background traffic, and valid ones that a day changes before it sends them."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from loadtests.faults.installation import RATE, UNDISTURBED, Installation
from loadtests.faults.repeater import Repeater
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World

EVERY_S = 0.25
EVENTS = 20
"""Transactions sent every EVERY_S."""
Change = Callable[[dict[str, Any]], dict[str, Any]]


class Traffic(Repeater):
    """Sends simulated transactions all the time; a context manager."""

    def __init__(self, installed: Installation) -> None:
        super().__init__(self._send_some, EVERY_S)
        self._installed = installed
        self.disturbances: dict[str, float] = {}
        """Shares of disturbed transactions, by kind of disturbance."""
        self._added: Callable[[], list[dict[str, Any]]] = list

    def add(self, count: int, change: Change = lambda record: record, age_ms: int = 0) -> None:
        """Add `count` changed transactions to all that is sent from now on; see `transactions`."""
        world = self._installed.world
        self._added = lambda: [change(record) for record in transactions(world, count, age_ms)]

    def end_added(self) -> None:
        """Send no more than the usual transactions."""
        self._added = list

    def _send_some(self) -> None:
        self._installed.send(EVENTS, **(UNDISTURBED | self.disturbances))
        if added := self._added():
            self._installed.send_raw([json.dumps(record).encode() for record in added])


def transactions(cards: World, count: int, age_ms: int = 0) -> list[dict[str, Any]]:
    """Return valid transactions of the world's cards, each with a new id.

    Args:
        age_ms: age of the newest transaction, milliseconds; the others are slightly older.
    """
    start = int(time.time() * 1000 - age_ms - count / RATE * 1000)
    stream = Stream(cards, RATE, start, disturbances=Disturbances.none())
    values = [value for batch in stream.blocks(events=count) for value in batch.encode()[1]]
    return [json.loads(value or b"") | {"transaction_id": uuid.uuid4().hex} for value in values]
