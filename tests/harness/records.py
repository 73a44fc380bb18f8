"""Records for the job that tests run."""

import itertools
import time

import numpy as np

from loadtests.faults.installation import world

_numbers = itertools.count()


def transaction(world_card: int = 0, **fields: object) -> dict[str, object]:
    """A valid transaction of now, with some fields changed."""
    card = world().cards.ids[world_card].as_py()
    number = next(_numbers)
    return {
        "transaction_id": f"t-{number}", "card_id": card, "merchant_id": "m-000001", "amount": 12.5,
        "currency": "EUR", "country": "DE", "event_time": int(np.floor(time.time() * 1000)), **fields,
    }  # fmt: skip
