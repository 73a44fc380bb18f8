"""The transaction_id of a load test, which encodes run, lane, number and intended sending time.

32 hex digits: 6 for the run, 2 for the lane (the worker), 8 for the transaction's number within the lane, 16
for the microseconds from the start of the run to the intended time. So a reader of an alert needs no lookup
to know when its transaction was due.
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
    """The number and time in a transaction_id."""

    number: int
    """Number within the lane, from 0."""
    due_us: int
    """Intended time, microseconds from the start of the run."""


def encode(share: Share, numbers: npt.NDArray[np.int64], due_us: npt.NDArray[np.int64]) -> pa.StringArray:
    """Encode the identifiers of events, shape (n,).

    Args:
        share: run and lane.
        numbers: numbers within the lane, below 2**32, shape (n,).
        due_us: intended times, microseconds from the start of the run, shape (n,).
    """
    head = np.uint64(share.run << 40 | share.lane << 32)
    first = tokens.hexadecimal(head | numbers.astype(np.uint64))
    return pc.binary_join_element_wise(first, tokens.hexadecimal(due_us.astype(np.uint64)), "")


def prefix(share: Share) -> str:
    """Return the common prefix of a lane's identifiers."""
    return f"{share.run:06x}{share.lane:02x}"


def decode(transaction_id: str, lane_prefix: str) -> Identity | None:
    """Decode an identifier; None if it is not of the lane with this prefix."""
    if len(transaction_id) != DIGITS or not transaction_id.startswith(lane_prefix):
        return None
    try:
        return Identity(int(transaction_id[_PREFIX:_NUMBER], 16), int(transaction_id[_NUMBER:], 16))
    except ValueError:
        return None
