"""Input and output types of the oracle: Kafka records in, one outcome per transaction out."""

from collections.abc import Callable
from enum import StrEnum
from hashlib import blake2b, sha256
from typing import Any, NamedTuple

from streaming_job.contracts import Reason

ALERTS = ("fraud_alerts", "suppressed_alerts")
UNITS = 10_000
"""Units per currency unit: amounts are integers, so that sums are exact."""


class Record(NamedTuple):
    """One Kafka record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Kafka timestamp, the arrival time: ms since 1970-01-01 UTC."""
    key: bytes | None
    """Key as received."""
    value: bytes | None
    """Value as received."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers; records of the job have query_id, key_group and commit_id."""


class Transaction(NamedTuple):
    """A transaction that passed the contract's checks."""

    transaction_id: str
    card_id: str
    merchant_id: str
    units: int
    """Amount in 1/10,000 of the currency unit."""
    currency: str
    country: str
    event_time: int
    """ms since 1970-01-01 UTC."""
    arrival: int
    """Kafka timestamp, ms since 1970-01-01 UTC."""
    partition: int
    offset: int


def content(tx: Transaction) -> tuple[int, str, str, str, int]:
    """Return the fields in which a repetition must agree, besides the id."""
    return tx.units, tx.currency, tx.merchant_id, tx.country, tx.event_time


class AcceptanceRules(NamedTuple):
    """The job settings that decide which transactions are accepted."""

    allowed_lateness_ms: int
    """A transaction whose event time is more than this behind its arrival is a dead letter."""
    allowed_skew_ms: int
    """A transaction whose event time is more than this ahead of its arrival is a dead letter."""
    partitions: int
    """Number of partitions of the transactions topic."""
    partitioner: str
    """Partitioner of the producers: murmur2 or crc32."""
    refuse_card_numbers: bool = True
    """Whether transactions whose card_id looks like a card number are dead letters."""
    row: Callable[[Record], Any] | None = None
    """Reads the JSON of a transaction that may be framed (`SchemaLog.row`); None: none is."""


class Kind(StrEnum):
    """The kinds of outcomes."""

    PASSED = "passed"
    ALERT = "alert"
    SUPPRESSED = "suppressed"
    DUPLICATE = "duplicate"
    DEAD_LETTER = "dead_letter"


class ExpectedOutcome(NamedTuple):
    """The right outcome of one record."""

    topic: str
    partition: int
    offset: int
    arrival: int
    """Kafka timestamp of the record, ms since 1970-01-01 UTC."""
    kind: Kind
    reason: Reason | None = None
    """Reason of the dead letter, else None."""
    records: tuple[tuple[str, dict[str, Any]], ...] = ()
    """The complete records that the outputs must have, except dead letters, each with the field of `Topics`
    that names its topic."""
    digest: bytes = b""
    """`digest` of the refused record's key and value; empty unless a dead letter."""
    looked_at: frozenset[str] = frozenset()
    """Features that the alert's model reads."""

    @property
    def alert(self) -> dict[str, Any] | None:
        """The alert, written or suppressed; None if there is none."""
        return next((record for field, record in self.records if field in ALERTS), None)


class SizedHash(NamedTuple):
    """Size and hash of a key or value; a dead letter that does not carry the bytes has these instead."""

    size: int
    """Bytes."""
    sha256: bytes


def sized_hash(content: bytes | None) -> SizedHash | None:
    """Return size and hash of a key or value; None if it is None."""
    return None if content is None else SizedHash(len(content), sha256(content).digest())


def digest(key: SizedHash | None, value: SizedHash | None) -> bytes:
    """Return a hash of a record's content, 16 bytes."""
    hasher = blake2b(digest_size=16)
    for content in (key, value):
        hasher.update(b"-" if content is None else b"+%d:" % content.size + content.sha256)
    return hasher.digest()
