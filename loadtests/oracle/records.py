"""What goes into the oracle and what comes out: Kafka records in, one outcome per transaction out."""

from enum import StrEnum
from hashlib import blake2b, sha256
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
    """Of records that the job wrote: query_id, key_group and commit_id."""


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


def content(tx: Transaction) -> tuple[int, str, str, int]:
    """What a repetition has to repeat beside the id."""
    return tx.units, tx.merchant_id, tx.country, tx.event_time


class Rules(NamedTuple):
    """What the job's settings say of which transactions are accepted."""

    allowed_lateness_ms: int
    """Older transactions, by their event time against their arrival, are dead letters."""
    allowed_skew_ms: int
    """Transactions further ahead of their arrival are dead letters."""
    partitions: int
    """Of the transactions topic."""
    partitioner: str
    """Of the producers: murmur2 or crc32."""
    refuse_card_numbers: bool = True
    """Whether transactions whose card_id looks like a card number are dead letters."""


class Kind(StrEnum):
    """What became of a record."""

    PASSED = "passed"
    ALERT = "alert"
    SUPPRESSED = "suppressed"
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
    """The whole alert, written or suppressed, as its contract has it, else None."""
    digest: bytes = b""
    """Of a dead letter: `digest` of the refused record's key and value."""
    looked_at: frozenset[str] = frozenset()
    """Names of the features that the alert's model looks at: an older release's alert may have only these."""
    optional: frozenset[str] = frozenset()
    """Fields of the alert that an older release, which also could have decided it, does not write."""
    shadows: tuple[dict[str, Any], ...] = ()
    """Records of shadow-alerts: challengers whose verdicts differ from the champion's."""


class Part(NamedTuple):
    """A key or a value, as far as a dead letter that does not carry it tells of it."""

    size: int
    """Bytes."""
    sha256: bytes


def part(content: bytes | None) -> Part | None:
    """What identifies a key or a value; None for none."""
    return None if content is None else Part(len(content), sha256(content).digest())


def digest(key: Part | None, value: Part | None) -> bytes:
    """A hash of a record's content; 16 bytes."""
    found = blake2b(digest_size=16)
    for one in (key, value):
        found.update(b"-" if one is None else b"+%d:" % one.size + one.sha256)
    return found.digest()
