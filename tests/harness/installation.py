"""The installation that tests run the job in, and records for it."""

import itertools
import time

import numpy as np

from loadtests.faults.installation import Installation, world

__all__ = ["Installation", "transaction", "world"]

_numbers = itertools.count()


def transaction(world_card: int = 0, **fields: object) -> dict[str, object]:
    """A transaction that keeps its contract, happening now, with some fields changed."""
    card = world().cards.ids[world_card].as_py()
    number = next(_numbers)
    return {
        "transaction_id": f"t-{number}", "card_id": card, "merchant_id": "m-000001", "amount": 12.5,
        "currency": "EUR", "country": "DE", "event_time": int(np.floor(time.time() * 1000)), **fields,
    }  # fmt: skip
