"""A whole Arrow batch of transactions at once.

The records are joined and parsed by one call of pyarrow's JSON reader, checked by column, and turned into
kernel records. What the columns cannot vouch for goes, record by record, to `strict`, whose word is final;
a batch that does not parse is halved until the bad record is alone with a few others, so that one bad
record does not slow down the rest.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from feature_store.hashing import hash_strings
from feature_store.layout import TRANSACTION, UNITS_PER_CURRENCY
from feature_store.training_set import country_codes
from streaming_job.contracts import Reason
from streaming_job.decode import strict
from streaming_job.decode.framing import BEYOND, CONSTANT, ESCAPED, NOT_ASCII, UNFRAMED, frame

_SCHEMA = pa.schema(
    [
        ("transaction_id", pa.string()),
        ("card_id", pa.string()),
        ("merchant_id", pa.string()),
        ("amount", pa.float64()),
        ("currency", pa.string()),
        ("country", pa.string()),
        ("event_time", pa.int64()),
    ]
)
_PARSE = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
ALONE = 16
"""Up to so many records are decoded one by one when they do not parse at once."""


@dataclass(frozen=True)
class TimeLimits:
    """How far event time and arrival may be apart."""

    lateness_ms: int
    skew_ms: int


@dataclass(frozen=True)
class Rejection:
    """One record that becomes a dead letter."""

    row: int
    """Row in the batch."""
    reason: Reason
    detail: str


@dataclass(frozen=True)
class Decoded:
    """What a batch came to."""

    records: NDArray[np.void]
    """Accepted transactions (TRANSACTION), in the batch's order."""
    rows: NDArray[np.int64]
    """Row in the batch of each accepted transaction."""
    rejections: list[Rejection]
    """The other rows."""


def _frame(values: pa.BinaryArray) -> tuple[pa.Buffer, NDArray[np.uint8]]:
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    present = values.is_valid().to_numpy(zero_copy_only=False)
    joined = np.empty(int(offsets[-1] - offsets[0]) + len(values), dtype=np.uint8)
    marks = np.empty(len(values), dtype=np.uint8)
    size = frame(
        data, offsets, present, strict.MAX_RECORD_BYTES, strict.MAX_NESTING, strict.MAX_DIGITS, joined, marks
    )
    return pa.py_buffer(joined[:size]), marks


def _parse(joined: pa.Buffer, rows: int) -> pa.Table | None:
    """A table of the contract's columns, or None if the buffer is not `rows` clean rows."""
    options = pj.ReadOptions(use_threads=False, block_size=max(joined.size, 1))
    try:
        table = pj.read_json(pa.BufferReader(joined), options, _PARSE)
    except pa.ArrowInvalid:
        return None
    return table.combine_chunks() if table.num_rows == rows else None


def _only(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _vouched(table: pa.Table, marks: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Rows whose every field is certainly good, shape (n,)."""
    good = (marks & (ESCAPED | NOT_ASCII | CONSTANT | BEYOND)) == 0
    for name in ("transaction_id", "card_id", "merchant_id"):
        length = pc.binary_length(_only(table[name])).fill_null(0).to_numpy(zero_copy_only=False)
        good &= (length >= 1) & (length <= strict.MAX_ID_CHARACTERS)
    for name, letters in (("currency", 3), ("country", 2)):
        codes = pc.dictionary_encode(_only(table[name]))
        fine = [
            len(text) == letters and text.isalpha() and text.isupper()  # of bytes: A-Z only
            for text in codes.dictionary.view(pa.binary()).to_pylist()  # maybe not UTF-8
        ]
        numbers = codes.indices.fill_null(len(fine)).to_numpy(zero_copy_only=False)
        good &= np.array([*fine, False])[numbers]
    amount = _only(table["amount"]).fill_null(-1.0).to_numpy(zero_copy_only=False)
    good &= (amount >= 0) & (amount <= strict.MAX_AMOUNT)
    time = _only(table["event_time"]).fill_null(-1).to_numpy(zero_copy_only=False)
    good &= (time >= 0) & (time <= strict.MAX_TIME_MS)
    return np.asarray(good, dtype=np.bool_)


def _to_records(table: pa.Table) -> NDArray[np.void]:
    records = np.zeros(table.num_rows, dtype=TRANSACTION)
    records["lo"], records["hi"] = hash_strings(_only(table["card_id"]))
    records["transaction"], _ = hash_strings(_only(table["transaction_id"]))
    records["merchant"], _ = hash_strings(_only(table["merchant_id"]))
    records["time"] = _only(table["event_time"]).to_numpy()
    records["amount"] = np.rint(_only(table["amount"]).to_numpy() * UNITS_PER_CURRENCY)
    countries = pc.dictionary_encode(_only(table["country"]))
    records["country"] = country_codes(countries.dictionary)[countries.indices.to_numpy()]
    return records


def _decode_singly(
    values: pa.BinaryArray, rows: NDArray[np.int64]
) -> tuple[pa.Table, list[Rejection], list[int]]:
    fields, rejections, kept = [], [], []
    for row in rows.tolist():
        try:
            fields.append(strict.transaction(values[row].as_py()))
            kept.append(row)
        except strict.Rejected as fault:
            rejections.append(Rejection(row, fault.reason, fault.detail))
    return pa.Table.from_pylist(fields, schema=_SCHEMA), rejections, kept


def _decode_fields(values: pa.BinaryArray) -> Decoded:
    joined, marks = _frame(values)
    framed = np.flatnonzero((marks & UNFRAMED) == 0)
    table = _parse(joined, framed.size)
    if table is None and len(values) > ALONE:
        half = len(values) // 2
        first, second = _decode_fields(values.slice(0, half)), _decode_fields(values.slice(half))
        return Decoded(
            np.concatenate([first.records, second.records]),
            np.concatenate([first.rows, second.rows + half]),
            first.rejections + [Rejection(r.row + half, r.reason, r.detail) for r in second.rejections],
        )
    if table is None:
        alone, rejections, kept = _decode_singly(values, np.arange(len(values)))
        return Decoded(_to_records(alone.combine_chunks()), np.array(kept, dtype=np.int64), rejections)
    vouched = _vouched(table, marks[framed])
    doubtful = np.ones(len(values), dtype=np.bool_)
    doubtful[framed[vouched]] = False
    if not doubtful.any():
        return Decoded(_to_records(table), framed, [])
    alone, rejections, kept = _decode_singly(values, np.flatnonzero(doubtful))
    both = pa.concat_tables([table.filter(pa.array(vouched)), alone]).combine_chunks()
    rows = np.concatenate([framed[vouched], np.array(kept, dtype=np.int64)])
    order = np.argsort(rows, kind="stable")
    return Decoded(_to_records(both)[order], rows[order], rejections)


def decode(
    values: pa.BinaryArray,
    partitions: NDArray[np.int32],
    offsets: NDArray[np.int64],
    arrivals: NDArray[np.int64],
    limits: TimeLimits,
) -> Decoded:
    """Decode and check a batch of transaction records.

    Args:
        values: record values, n rows.
        partitions: Kafka partition of each, shape (n,).
        offsets: Kafka offset of each, shape (n,).
        arrivals: Kafka timestamp of each, ms, shape (n,).
        limits: allowed lateness and skew.
    """
    fields = _decode_fields(values)
    records = fields.records
    records["partition"] = partitions[fields.rows]
    records["offset"] = offsets[fields.rows]
    records["arrival"] = arrivals[fields.rows]
    timely = (records["time"] >= records["arrival"] - limits.lateness_ms) & (
        records["time"] <= records["arrival"] + limits.skew_ms
    )
    if timely.all():
        return fields
    rejections = list(fields.rejections)
    for at in np.flatnonzero(~timely).tolist():
        try:
            strict.check_time(
                int(records["time"][at]), int(records["arrival"][at]), limits.lateness_ms, limits.skew_ms
            )
        except strict.Rejected as fault:
            rejections.append(Rejection(int(fields.rows[at]), fault.reason, fault.detail))
    return Decoded(records[timely], fields.rows[timely], rejections)
