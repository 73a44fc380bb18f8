"""What goes into the oracle and what comes out: Kafka records in, one outcome per transaction out."""

from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from streaming_job.contracts import Reason

UNITS = 10_000
"""Amounts are integers in this fraction of the currency unit, so that sums are exact."""


class Record(NamedTuple):
    """One record as it lies on the log."""

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    offset: int
    """Offset in the partition."""
    timestamp: int
    """Kafka timestamp, the arrival time: ms since 1970-01-01 UTC."""
    key: bytes | None
    """Key as received."""
    value: bytes | None
    """Value as received."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Of records that the job wrote: batch_id and query_id."""


class Transaction(NamedTuple):
    """A transaction that keeps its contract."""

    transaction_id: str
    card_id: str
    merchant_id: str
    units: int
    """Amount in 1/10,000 of the currency unit: what all sums are made of."""
    currency: str
    country: str
    event_time: int
    """ms since 1970-01-01 UTC."""
    arrival: int
    """Kafka timestamp, ms since 1970-01-01 UTC."""
    partition: int
    offset: int


class Kind(StrEnum):
    """What became of a record."""

    PASSED = "passed"
    ALERT = "alert"
    DUPLICATE = "duplicate"
    DEAD_LETTER = "dead_letter"


class Outcome(NamedTuple):
    """What had to become of one record."""

    topic: str
    partition: int
    offset: int
    kind: Kind
    reason: Reason | None = None
    """Why it is a dead letter, else None."""
    alert: dict[str, Any] | None = None
    """The whole alert as its contract has it, else None."""
    digest: bytes = b""
    """Of a dead letter: `digest` of the refused record's key and value."""


def digest(key: bytes | None, value: bytes | None) -> bytes:
    """A hash of a record's content; 16 bytes."""
    found = blake2b(digest_size=16)
    for part in (key, value):
        found.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return found.digest()
