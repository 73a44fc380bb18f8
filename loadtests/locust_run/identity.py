"""The transaction_id of a load test: which run, worker and number it has, and when it was meant to be sent.

32 hex digits: run (6), lane (2), number within the lane (8), microseconds from the start of the run to the
intended time (16). Who reads an alert needs no table of what was sent to know when its transaction was due.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.locust_run.plan import Share
from loadtests.simulator import tokens

DIGITS = 32
_PREFIX, _NUMBER = 8, 16


class Identity(NamedTuple):
    """What a transaction_id says, beside run and lane."""

    number: int
    """Within the lane, from 0."""
    due_us: int
    """Microseconds from the start of the run."""


def encode(share: Share, numbers: npt.NDArray[np.int64], due_us: npt.NDArray[np.int64]) -> pa.StringArray:
    """Identifiers of events, shape (n,).

    Args:
        share: run and lane.
        numbers: within the lane, below 2**32, shape (n,).
        due_us: microseconds from the start, shape (n,).
    """
    head = np.uint64(share.run << 40 | share.lane << 32)
    first = tokens.hexadecimal(head | numbers.astype(np.uint64))
    return pc.binary_join_element_wise(first, tokens.hexadecimal(due_us.astype(np.uint64)), "")


def prefix(share: Share) -> str:
    """What all identifiers of a lane begin with."""
    return f"{share.run:06x}{share.lane:02x}"


def decode(transaction_id: str, mine: str) -> Identity | None:
    """What an identifier says; None if it is not one of the lane with the prefix `mine`."""
    if len(transaction_id) != DIGITS or not transaction_id.startswith(mine):
        return None
    try:
        return Identity(int(transaction_id[_PREFIX:_NUMBER], 16), int(transaction_id[_NUMBER:], 16))
    except ValueError:
        return None
