"""Record layouts (numpy dtypes) of a key group's state.

All state is in flat numpy arrays of fixed-size records. So a kernel walks it without touching Python objects,
a range of it is written with one copy, and any process can map a file of it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 8
"""Format version, written into every persisted piece; pieces of other versions are refused."""

UNITS_PER_CURRENCY = 10_000
"""Amounts are int64 in 1/10,000 of the currency unit, so that sums are exact in any order."""

CURRENCY_BITS = 15
CURRENCY_MASK = (1 << CURRENCY_BITS) - 1
"""Low bits of an event's `money`, which hold the currency: 26^3 codes. An amount has less than 44 bits."""
COUNTRIES = 26 * 26
"""Number of country codes. A code is 26 * first letter + second letter, both from A = 0."""

CARD = np.dtype(
    [
        ("lo", "u8"),  # 128-bit hash of card_id: at 10^8 cards a collision has odds of 10^-23
        ("hi", "u8"),
        ("last_arrival", "i8"),  # ms; greatest arrival of an accepted transaction
        ("max_time", "i8"),  # ms; greatest accepted event time
        ("mean", "f8"),  # running mean and sum of squared deviations (Welford), currency units
        ("m2", "f8"),
        ("robust_mean", "f8"),
        ("seen", "u4"),  # transactions accepted since the card (re)started
        ("alerts", "u4"),  # alerts since then
        ("segment", "i4"),  # first event in the events array; -1: none
        ("events", "i4"),  # events kept there
        ("size_class", "i2"),  # capacity is FIRST_CAPACITY << size_class
        ("partition", "i2"),  # Kafka partition of its transactions; -1: unknown
        ("profile", "i4"),  # newest profile version; -1: none
        ("alert_hours", "i4"),  # its record in the alert hours array; -1: none
        ("hot", "i4"),  # its record in the hot array; -1: none
        ("murmur2", "u4"),  # hashes of card_id, see PLACE
        ("crc32", "u4"),
    ],
    align=True,
)

PLACE = np.dtype(
    [
        ("home", "i4"),  # Kafka partition of the card's transactions; -1: unknown
        ("murmur2", "u4"),  # hashes of card_id by the partitioners of Kafka's clients, from which its
        ("crc32", "u4"),  # partition in any topic follows
    ],
    align=True,
)
"""Where a card's transactions are."""

EVENT = np.dtype(
    [
        ("when", "i8"),  # event time in ms << 16 | country << 6 | flags; compares like the event time
        ("money", "i8"),  # amount in 1/10,000 currency units << 15 | currency; compares like the amount
        ("transaction", "u8"),  # low bits: half of the id's hash; high bits: arrival in ms (see `arrivals`)
        ("merchant", "u8"),  # low bits: hash of merchant_id; high bits: other half of the transaction id's
    ],
    align=True,
)
TRANSACTION_BITS = 48
TRANSACTION_MASK = (1 << TRANSACTION_BITS) - 1
"""Bits of a transaction id's hash that are compared. A card has about 20 ids that can still repeat; a new
id collides with one of them by chance once in 10^13 transactions. A forged collision gains nothing: a
repetition must have the same content, too."""
MERCHANT_BITS = 40
MERCHANT_MASK = (1 << MERCHANT_BITS) - 1
"""Bits of a merchant id's hash that are compared. A new merchant is mistaken for one of the card's last 100
or so once in 10^10 transactions. On disk a card has the hash of each of its merchants once, and the
hashes of only those transaction ids that can still repeat. Hashes do not compress: one bit less in each of
them saves four bytes a card."""
WHEN_SHIFT = 16
COUNTRY_SHIFT = 6
COUNTRY_MASK = 1023
SPIKE = 1
"""Event flag: the amount was a spike (ratio_robust)."""
LAST_AT_MERCHANT = 2
"""Event flag: no later event of the card within 30 days is at the same merchant. Stale for hot cards."""
LAST_IN_COUNTRY = 4
"""Event flag: no later event of the card within 30 days is in the same country. Stale for hot cards."""

PROFILE = np.dtype(
    [
        ("lo", "u8"),  # card
        ("hi", "u8"),
        ("arrival", "i8"),  # Kafka timestamp, ms; BEGINNING: visible from the beginning
        ("offset", "i8"),
        ("credit_limit", "f8"),
        ("lsn", "i8"),  # Postgres LSN; 0: unknown
        ("committed", "i8"),  # when Postgres committed the change, or a snapshot read the row, ms; 0: unknown
        ("opened_on", "i4"),  # days since 1970-01-01
        ("older", "i4"),  # next older version of the card; -1: none
        ("partition", "i2"),
        ("country", "i2"),
        ("risk_tier", "i2"),
        ("status", "u1"),  # index into STATUSES; a deleted row keeps its last status
        ("change", "u1"),  # index into CHANGES
    ],
    align=True,
)
BEGINNING = np.iinfo(np.int64).min
STATUSES = ("active", "blocked", "closed")
ACTIVE, BLOCKED, CLOSED = range(3)
CHANGES = ("snapshot", "upsert", "reread", "status_only", "delete", "tombstone", "compacted")
SNAPSHOT, UPSERT, REREAD, STATUS_ONLY, DELETE, TOMBSTONE, COMPACTED = range(7)
"""Kinds of a profile change, indices into CHANGES. SNAPSHOT: a row of the first snapshot; REREAD: a row of a
later snapshot, stored as SNAPSHOT. STATUS_ONLY, only stored: a row with an invalid column, without an earlier
version to take the column from. COMPACTED, no record of the topic: versions that compaction may have removed,
before the first one that is left. A version of STATUS_ONLY or above is no profile: only its status counts."""
UNKNOWN_VERSION = -2
"""In place of a version's index: compaction may have removed the one in force."""
NO_COUNTRY, NO_TIER, NO_DAY = -1, -1, np.iinfo(np.int32).min
"""Values of the invalid columns of a change; an invalid credit_limit is NaN."""

ALERT_HOURS = np.dtype([("hour", "i8"), ("sent", "i8"), ("counts", "u4", (24,))], align=True)
"""Alerts of a card by clock hour of arrival: `counts[h % 24]` for the 24 hours up to `hour`. `sent` is the
arrival of the last alert that no cooldown suppressed, ms; 0: none, or unknown (format 3)."""

TRANSACTION = np.dtype(
    [
        ("lo", "u8"),
        ("hi", "u8"),
        ("time", "i8"),  # event time, ms
        ("arrival", "i8"),  # Kafka timestamp, ms
        ("amount", "i8"),  # 1/10,000 currency units
        ("transaction", "u8"),
        ("merchant", "u8"),
        ("offset", "i8"),
        ("partition", "i4"),
        ("country", "i2"),
        ("currency", "i2"),
    ],
    align=True,
)
"""One decoded transaction, the input of the kernels: 72 bytes, no strings."""

ARRIVAL_BUCKETS = 60
"""Buckets of each of a hot card's rings of arrivals; together they span the ring's window."""
HOT = np.dtype(
    [
        ("last_spike", "i8"),  # event time of its latest spike; -1: none
        ("ids", "i4"),  # entries in the newer of its two sets of recent ids (see `recent_ids`)
        ("newer", "i4"),  # index of the newer set
        ("newest", "i8", (3,)),  # last bucket of each ring of arrivals: arrival // width (see `arrivals`)
        ("arrived", "i8", (3,)),  # events in the ring
        ("arrivals", "u4", (3, ARRIVAL_BUCKETS)),  # events in each bucket
    ],
    align=True,
)
"""Scalars and arrival rings of a hot card."""

BUCKET = np.dtype(
    [
        ("index", "i8"),  # event time // width
        ("total", "i8"),  # 1/10,000 currency units
        ("greatest", "i8"),
        ("squares", "f8"),  # sum of squared amounts in currency units
        ("count", "u4"),
        ("spikes", "u4"),
        ("merchants", "u8", (4,)),  # bitmap by hash
        ("countries", "u8", (4,)),
    ],
    align=True,
)
"""One bucket of a hot card's ring by event time."""

FIRST_CAPACITY = 4
SIZE_CLASSES = 8
MOST_EVENTS = FIRST_CAPACITY << (SIZE_CLASSES - 1)
"""Greatest number of events kept one by one for a card: 512. A card with more becomes hot."""
RING = 128
"""Buckets of a ring by event time; a hot card has one such ring per window by event time."""
IDS_PER_SET = 2048
HOT_IDS = 2 * IDS_PER_SET
EMPTY = -1

# counters of a key group, one int64 each: records taken from each array, free ones included; live events,
# free cards, the card at which the next sweep (for eviction) begins, cards without a profile; heads of the
# lists of free records
CARDS, EVENTS, PROFILES, ALERTED, HOT_CARDS = range(5)
LIVE_EVENTS, FREE_CARDS, SWEPT, NO_PROFILE = range(5, 9)
FREE_CARD, FREE_PROFILE, FREE_HOT, FREE_ALERTED, FREE_SEGMENT = range(9, 14)
COUNTERS = FREE_SEGMENT + SIZE_CLASSES
"""Number of counters; FREE_SEGMENT + c heads the list of free segments of size class c."""


def rows_of(records: NDArray[np.void], rows: NDArray[np.bool_] | NDArray[np.int64]) -> NDArray[np.void]:
    """Return a copy of some records, `records[rows]`, 30 times as fast: numpy copies them field by field."""
    chosen: NDArray[np.void] = _bytes(records)[rows].view(records.dtype)
    return chosen


def joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the records of one or more arrays of a layout, `np.concatenate(parts)`, as fast as `rows_of`."""
    return np.concatenate([_bytes(part) for part in parts]).view(parts[0].dtype)


def _bytes(records: NDArray[np.void]) -> NDArray[np.void]:
    return records.view(f"V{records.dtype.itemsize}")


def country_code(country: str) -> int:
    """Encode an ISO 3166-1 alpha-2 country of two letters A-Z as 0..675."""
    return (ord(country[0]) - 65) * 26 + ord(country[1]) - 65


def currency_code(currency: str) -> int:
    """Encode an ISO 4217 currency of three letters A-Z as 0..17,575, less than 1 << CURRENCY_BITS."""
    return country_code(currency) * 26 + ord(currency[2]) - 65


def country_name(code: int) -> str:
    """Decode a country code; inverse of `country_code`."""
    return chr(65 + code // 26) + chr(65 + code % 26)


def currency_name(code: int) -> str:
    """Decode a currency code; inverse of `currency_code`."""
    return country_name(code // 26) + chr(65 + code % 26)
