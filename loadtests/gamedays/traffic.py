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


def transactions(cards: World, count: int, age_ms: int = 0) -> list[dict[str, Any]]:
    """Return valid transactions of the world's cards, each with a new id.

    Args:
        age_ms: age of the newest transaction, milliseconds; the others are slightly older.
    """
    start = int(time.time() * 1000 - age_ms - count / RATE * 1000)
    stream = Stream(cards, RATE, start, disturbances=Disturbances.none())
    values = [value for batch in stream.blocks(events=count) for value in batch.encode()[1]]
    return [json.loads(value or b"") | {"transaction_id": uuid.uuid4().hex} for value in values]


def encoded(records: list[dict[str, Any]]) -> list[bytes]:
    """Encode records as JSON."""
    return [json.dumps(record).encode() for record in records]
