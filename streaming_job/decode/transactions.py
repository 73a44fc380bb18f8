"""A whole Arrow batch of transactions at once.

One kernel reads all plain records (`plain`); what it will not vouch for goes, record by record, to `strict`,
whose word is final. So a bad record costs what it costs, and does not slow down the others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.hashing import hash_string
from feature_store.layout import TRANSACTION, UNITS_PER_CURRENCY, country_code
from streaming_job.contracts import Reason
from streaming_job.decode import plain, strict


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
    quotes: pa.BinaryArray
    """What an alert quotes of each accepted transaction, see `quote`."""
    rows: NDArray[np.int64]
    """Row in the batch of each accepted transaction."""
    rejections: list[Rejection]
    """The other rows."""


def _buffers(values: pa.BinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The bytes of all records, and where each begins and ends."""
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data_buffer or b"", dtype=np.uint8), offsets


def _enter(record: np.void, fields: dict[str, Any]) -> None:
    """Set what `plain.read` sets of a plain record."""
    record["lo"], record["hi"] = hash_string(fields["card_id"])
    record["transaction"], _ = hash_string(fields["transaction_id"])
    record["merchant"], _ = hash_string(fields["merchant_id"])
    record["time"] = fields["event_time"]
    record["amount"] = np.rint(fields["amount"] * UNITS_PER_CURRENCY)
    record["country"] = country_code(fields["country"])


def quote(fields: dict[str, Any]) -> bytes:
    """What an alert quotes of a transaction: card_id, transaction_id, merchant_id, currency."""
    return "\n".join(fields[strict.FIELDS[field]] for field in plain.QUOTED).encode()


def unquote(text: bytes) -> list[str]:
    """Inverse of `quote`."""
    return text.decode().split("\n")


def _decode_fields(values: pa.BinaryArray) -> Decoded:
    n = len(values)
    data, offsets = _buffers(values) if n else (np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int32))
    records = np.zeros(n, dtype=TRANSACTION)
    good = np.empty(n, dtype=np.bool_)
    present = values.is_valid().to_numpy(zero_copy_only=False)
    text = np.empty(offsets[-1] - offsets[0], dtype=np.uint8)
    text_offsets = np.empty(n + 1, dtype=np.int32)
    plain.read(data, offsets, present, records, good, text, text_offsets)
    quotes = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(text_offsets), pa.py_buffer(text)])
    if good.all():
        return Decoded(records, quotes, np.arange(n), [])
    doubtful = ~good
    told: list[bytes] = []
    rejections = []
    for row in np.flatnonzero(doubtful).tolist():
        try:
            fields = strict.transaction(values[row].as_py())
        except strict.Rejected as fault:
            rejections.append(Rejection(row, fault.reason, fault.detail))
            told.append(b"")
        else:
            _enter(records[row], fields)
            told.append(quote(fields))
            good[row] = True
    quotes = pc.replace_with_mask(quotes, pa.array(doubtful), pa.array(told, type=pa.binary()))
    if not rejections:
        return Decoded(records, quotes, np.arange(n), [])
    return Decoded(records[good], quotes.filter(pa.array(good)), np.flatnonzero(good), rejections)


def decode(
    values: pa.BinaryArray,
    partition: int,
    offsets: NDArray[np.int64],
    arrivals: NDArray[np.int64],
    limits: TimeLimits,
) -> Decoded:
    """Decode and check transaction records of one partition.

    Args:
        values: record values, n rows.
        partition: of the topic.
        offsets: Kafka offset of each, shape (n,).
        arrivals: Kafka timestamp of each, ms, shape (n,).
        limits: allowed lateness and skew.
    """
    fields = _decode_fields(values)
    records = fields.records
    records["partition"] = partition
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
    return Decoded(records[timely], fields.quotes.filter(pa.array(timely)), fields.rows[timely], rejections)
