"""Kernel that validates and decodes plain transactions; all others go to `strict`.

One pass over a record's bytes checks that it is one JSON object, finds the fields that decisions depend on,
checks and converts them. Everything unusual (an identifier with an escape, a number with an exponent or with
more digits than a double holds exactly, a repeated field) and everything invalid is left to `strict`. So the
kernel may reject a good record, which then costs more time. It never accepts a bad record, and its values are
those of `strict`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.jit import njit
from feature_store.kernels.hashing import hash_bytes
from feature_store.layout import UNITS_PER_CURRENCY
from streaming_job.decode.grammar import ESCAPED, Bytes, blank, byte_at, digits, skip, string
from streaming_job.decode.strict import FIELDS, MAX_AMOUNT, MAX_ID_CHARACTERS, MAX_RECORD_BYTES, MAX_TIME_MS

EXACT = 1 << 53
"""Doubles represent integers below this, and powers of ten up to 10^22, exactly; so an integer divided
by a power of ten is rounded only once, to the nearest double (W. Clinger, "How to read floating point numbers
accurately", 1990)."""
POWERS = 10.0 ** np.arange(23)

_LONGEST_NAME = 16
_NAMES = np.zeros((len(FIELDS), _LONGEST_NAME), dtype=np.uint8)
for _row, _name in enumerate(FIELDS):
    _NAMES[_row, : len(_name)] = list(_name.encode())
_LENGTHS = np.array([len(name) for name in FIELDS])
_ALL = (1 << len(FIELDS)) - 1
_TRANSACTION, _CARD, _MERCHANT, _AMOUNT, _CURRENCY, _COUNTRY, _TIME = range(7)
_UNKNOWN = -1

QUOTED = (_CARD, _TRANSACTION, _MERCHANT, _CURRENCY)
"""Fields that an alert copies unchanged; joined in this order by SEPARATOR, they are a record's quote."""
SEPARATOR = 0x0A
"""Separator of a quote's fields: a control character, which no field may contain."""

Spans = NDArray[np.int64]
"""Positions of the first character and of the closing quotation mark of each field that is a string, shape
(len(FIELDS), 2)."""


@njit(cache=True, inline="always")
def _field(data: Bytes, start: int, end: int) -> int:
    """Return the index of a field name in FIELDS, or _UNKNOWN."""
    for field in range(_LENGTHS.size):
        if _LENGTHS[field] == end - start:
            i = 0
            while i < end - start and data[start + i] == _NAMES[field, i]:
                i += 1
            if i == end - start:
                return field
    return _UNKNOWN


@njit(cache=True, inline="always")
def _capitals(data: Bytes, start: int, end: int) -> bool:
    """Return whether all characters are A to Z."""
    capitals = True
    for i in range(start, end):
        capitals &= 0x41 <= data[i] <= 0x5A
    return capitals


@njit(cache=True, inline="always")
def _characters(data: Bytes, start: int, end: int) -> int:
    """Return the number of UTF-8 characters."""
    length = 0
    for i in range(start, end):
        length += data[i] & 0xC0 != 0x80
    return length


@njit(cache=True)
def _text(data: Bytes, at: int, end: int, field: int, record: Any, spans: Spans) -> int:
    """Read a string field into `record`; return the position after it, or -1."""
    if byte_at(data, at, end) != 0x22:
        return -1
    start = at + 1
    close, kind = string(data, start, end)
    if close < 0 or kind & ESCAPED:
        return -1
    spans[field, 0], spans[field, 1] = start, close
    length = _characters(data, start, close)
    if field == _COUNTRY:
        if length != 2 or not _capitals(data, start, close):
            return -1
        record.country = np.int16((data[start] - 65) * 26 + data[start + 1] - 65)
    elif field == _CURRENCY:
        if length != 3 or not _capitals(data, start, close):
            return -1
        code = (np.int64(data[start]) - 65) * 26 + data[start + 1] - 65
        record.currency = np.int16(code * 26 + data[start + 2] - 65)
    else:
        if not 1 <= length <= MAX_ID_CHARACTERS:
            return -1
        lo, hi = hash_bytes(data, start, close)
        if field == _CARD:
            record.lo = lo
            record.hi = hi
        elif field == _MERCHANT:
            record.merchant = lo
        else:
            record.transaction = lo
    return close + 1


@njit(cache=True)
def _figure(data: Bytes, at: int, end: int, field: int, record: Any) -> int:
    """Read a number field into `record`; return the position after it, or -1."""
    start = at
    whole = digits(data, at, end)
    if whole == start or (data[start] == 0x30 and whole > start + 1):
        return -1
    at = whole
    if byte_at(data, at, end) == 0x2E:
        at = digits(data, at + 1, end)
        if at == whole + 1:
            return -1
    decimals = max(at - whole - 1, 0)
    if at - start > 18 or byte_at(data, at, end) | 0x20 == 0x65:  # too many digits for int64, or e, E
        return -1
    value = np.int64(0)
    for i in range(start, at):
        if i != whole:
            value = value * 10 + (np.int64(data[i]) - 0x30)
    if field == _TIME:
        if decimals or at != whole or value > MAX_TIME_MS:
            return -1
        record.time = value
        return at
    if value >= EXACT:
        return -1
    amount = value / POWERS[decimals]
    if amount > MAX_AMOUNT:
        return -1
    record.amount = np.int64(np.rint(amount * UNITS_PER_CURRENCY))
    return at


@njit(cache=True)
def _read(data: Bytes, at: int, end: int, record: Any, spans: Spans) -> bool:
    """Read one record; return whether it is plain."""
    if end - at > MAX_RECORD_BYTES:
        return False
    at = blank(data, at, end)
    if byte_at(data, at, end) != 0x7B:
        return False
    seen = 0
    byte = 0x2C
    while byte == 0x2C:
        at = blank(data, at + 1, end)
        if byte_at(data, at, end) != 0x22:
            return False
        start = at + 1
        at, kind = string(data, start, end)
        if at < 0 or kind & ESCAPED:  # an escaped name could be one of FIELDS
            return False
        field = _field(data, start, at)
        at = blank(data, at + 1, end)
        if byte_at(data, at, end) != 0x3A:
            return False
        at = blank(data, at + 1, end)
        if field == _UNKNOWN:
            at = skip(data, at, end)
        elif seen >> field & 1:
            return False
        else:
            seen |= 1 << field
            if field in (_AMOUNT, _TIME):
                at = _figure(data, at, end, field, record)
            else:
                at = _text(data, at, end, field, record, spans)
        if at < 0:
            return False
        at = blank(data, at, end)
        byte = byte_at(data, at, end)
    return byte == 0x7D and seen == _ALL and blank(data, at + 1, end) == end


@njit(cache=True, inline="always")
def _quote(data: Bytes, spans: Spans, quotes: Bytes, at: int) -> int:
    """Append a record's quote; return the position after it."""
    for field in QUOTED:
        if field != QUOTED[0]:
            quotes[at] = SEPARATOR
            at += 1
        for i in range(spans[field, 0], spans[field, 1]):
            quotes[at] = data[i]
            at += 1
    return at


@njit(cache=True, nogil=True)
def read(
    data: Bytes,
    offsets: NDArray[np.int32],
    present: NDArray[np.bool_],
    records: np.ndarray,
    plain: np.ndarray,
    quotes: Bytes,
    quote_offsets: NDArray[np.int32],
) -> None:
    """Decode the plain records.

    Args:
        data: bytes of all records.
        offsets: record i is data[offsets[i]:offsets[i + 1]], shape (n + 1,).
        present: whether record i is not null, shape (n,).
        records: out, TRANSACTION[n] (`feature_store.layout`): hashes of the ids, amount, currency, country
            and event time of the plain records; the rows of other records are undefined.
        plain: out, bool[n]: whether record i is plain.
        quotes: out, the QUOTED fields of the plain records, SEPARATOR between them; at least as large as all
            records together.
        quote_offsets: out, the quote of record i is quotes[quote_offsets[i]:quote_offsets[i + 1]],
            shape (n + 1,).
    """
    spans = np.empty((len(FIELDS), 2), dtype=np.int64)
    at = 0
    quote_offsets[0] = 0
    for row in range(plain.size):
        plain[row] = present[row] and _read(data, offsets[row], offsets[row + 1], records[row], spans)
        if plain[row]:
            at = _quote(data, spans, quotes, at)
        quote_offsets[row + 1] = at


@njit(cache=True, nogil=True)
def copy_card_ids(
    quotes: Bytes, offsets: NDArray[np.int32], card_ids: Bytes, card_offsets: NDArray[np.int32]
) -> None:
    """Copy the card_id, which is the first field, out of each quote.

    Args:
        quotes: bytes of all quotes.
        offsets: quote i is quotes[offsets[i]:offsets[i + 1]], shape (n + 1,).
        card_ids: out, at least as large as the quotes together.
        card_offsets: out, card_id i is card_ids[card_offsets[i]:card_offsets[i + 1]], shape (n + 1,).
    """
    to = 0
    card_offsets[0] = 0
    for row in range(offsets.size - 1):
        at = offsets[row]
        while at < offsets[row + 1] and quotes[at] != SEPARATOR:
            card_ids[to] = quotes[at]
            at += 1
            to += 1
        card_offsets[row + 1] = to
