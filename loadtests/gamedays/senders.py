"""Valid transactions that a game day sends besides its usual traffic; most game days change them first."""

import json
import time
import uuid
from typing import Any

from loadtests.faults.installation import RATE
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World


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
