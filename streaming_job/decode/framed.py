"""Framed transactions, as serialisers with a schema registry write them, become JSON. Pure.

A framed value is a zero byte, with which no JSON begins, the id of a schema in 4 bytes (big-endian), and the
payload. It is read with a schema that had arrived when the transaction did. No registry is asked, so a
decision remains a function of the log; and whatever follows knows JSON only.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_job.contracts import ContractError, Reason
from streaming_job.contracts.record_schemas import RecordSchema, read
from streaming_job.decode import columns
from streaming_job.decode.strict import FIELDS, MAX_RECORD_BYTES, Rejected
from streaming_job.log.records import Records

FRAME = 5
"""Bytes before the payload."""
MOST_UNKNOWN = 1_000
"""Number of unknown schemas of which is noted that transactions named them."""
MISPLACED = "only schemas in partition 0 count, in its order; write them with `fraud schemas`"


def rows_of(values: pa.BinaryArray) -> NDArray[np.intp]:
    """Return which values are framed, ascending."""
    data, offsets = columns.buffers(values)
    long_enough = np.flatnonzero((np.diff(offsets) >= FRAME) & columns.present(values))
    rows: NDArray[np.intp] = long_enough[data[offsets[long_enough]] == 0]
    return rows


class RecordSchemas:
    """The accepted schemas, each with its arrival; the first with an id holds for ever."""

    def __init__(self, stored: Iterable[Sequence[Any]] = ()) -> None:
        """Restore the schemas from `records`, as parsed from JSON; by default there are none."""
        self.records: list[tuple[int, str]] = []
        """(arrival in ms, JSON text) of each accepted schema, as stored in the state."""
        self._unknown: dict[int, int] = {}
        """Newest arrival of transactions that named an unknown schema, ms, by its id."""
        self._known: dict[int, tuple[int, RecordSchema, Callable[[bytes], bytes]]] = {}
        for arrival, text in stored:
            self.add(arrival, text.encode())

    def add(self, arrival: int, value: bytes | None) -> int:
        """Add a schema; return the newest arrival of transactions that named it before (ms), or -1.

        Raises:
            Rejected: it is not accepted, or its id has another schema.
        """
        if not value:
            raise Rejected(Reason.EMPTY_VALUE, "the record has no value")
        if len(value) > MAX_RECORD_BYTES:
            detail = f"the limit is {MAX_RECORD_BYTES} bytes: the state keeps the whole record"
            raise Rejected(Reason.RECORD_TOO_LARGE, detail)
        try:
            schema = read(value)
        except ContractError as fault:
            raise Rejected(Reason.INVALID_VALUE, str(fault)) from fault
        known = self._known.get(schema.schema_id)
        if known is None:
            self._known[schema.schema_id] = arrival, schema, _reader(schema)
            self.records.append((arrival, value.decode()))
        elif known[1] != schema:
            raise Rejected(
                Reason.INVALID_VALUE, f"id {schema.schema_id} has another schema since {known[0]} ms"
            )
        return self._unknown.pop(schema.schema_id, -1)

    def has(self, schema: RecordSchema) -> bool:
        """Return whether the schema is among them."""
        known = self._known.get(schema.schema_id)
        return known is not None and known[1] == schema

    def fold(self, records: Records) -> tuple[dict[int, Rejected], set[int]]:
        """Add the schemas of records, in the order of offsets.

        Returns:
            By row why one is refused; and the rows of those that became readable after a transaction that
            should have been read with them.
        """
        refused, late = {}, set()
        for row, value in enumerate(records.values.to_pylist()):
            arrival = int(records.arrivals[row])
            try:
                if records.partitions[row]:
                    raise Rejected(Reason.WRONG_PARTITION, MISPLACED)
                if self.add(arrival, value) >= arrival:
                    late.add(row)
            except Rejected as fault:
                refused[row] = fault
        return refused, late

    def unframed(
        self, values: pa.BinaryArray, arrivals: NDArray[np.int64]
    ) -> tuple[pa.BinaryArray, dict[int, Rejected]]:
        """Return n transactions with JSON in place of frames, null for those refused; and by row why.

        Args:
            arrivals: ms, shape (n,).
        """
        rows = rows_of(values)
        if not rows.size:
            return values, {}
        refused: dict[int, Rejected] = {}
        replacements: list[bytes | None] = []
        for row in rows.tolist():
            try:
                replacements.append(self.json(values[row].as_py(), int(arrivals[row])))
            except Rejected as fault:
                refused[row] = fault
                replacements.append(None)
        framed = np.zeros(len(values), dtype=np.bool_)
        framed[rows] = True
        return pc.replace_with_mask(values, pa.array(framed), pa.array(replacements, pa.binary())), refused

    def json(self, value: bytes | None, arrival: int | None = None) -> bytes | None:
        """Return the JSON of a value; a value without a frame as it is.

        Args:
            arrival: of the transaction, ms; None: it arrives after all schemas.

        Raises:
            Rejected: it is too large, its schema is not known, or it is no record of it.
        """
        if value is None or len(value) < FRAME or value[0]:
            return value
        if len(value) > MAX_RECORD_BYTES:
            detail = f"{len(value)} bytes; at most {MAX_RECORD_BYTES} are allowed"
            raise Rejected(Reason.RECORD_TOO_LARGE, detail)
        number = int.from_bytes(value[1:FRAME], "big")
        known = self._known.get(number)
        if known is None or (arrival is not None and known[0] > arrival):
            if number in self._unknown or len(self._unknown) < MOST_UNKNOWN:
                self._unknown[number] = max(arrival or 0, self._unknown.get(number, 0))
            detail = (
                f"schema {number} was not published before the record arrived; see `fraud schemas publish`"
            )
            raise Rejected(Reason.UNKNOWN_SCHEMA, detail)
        return known[2](value[FRAME:])


def _reader(schema: RecordSchema) -> Callable[[bytes], bytes]:
    """Return the function payload -> JSON."""
    if schema.avro is None:
        return bytes
    unit = 10**schema.scale

    def to_json(payload: bytes) -> bytes:
        stream = BytesIO(payload)
        try:
            record: Any = fastavro.schemaless_reader(stream, schema.avro)
        except Exception as fault:  # for bytes that are no record, fastavro raises what its parts raise
            detail = f"no record of schema {schema.schema_id} ({type(fault).__name__})"
            raise Rejected(Reason.MALFORMED_AVRO, detail) from None
        if rest := len(payload) - stream.tell():
            detail = f"{rest} bytes follow the record of schema {schema.schema_id}"
            raise Rejected(Reason.MALFORMED_AVRO, detail)
        fields = {name: record[name] for name in FIELDS}
        amount = fields["amount"]
        if amount == b"":
            raise Rejected(Reason.MALFORMED_AVRO, "the amount's decimal has no bytes")
        if isinstance(amount, bytes):
            fields["amount"] = amount = _quotient(int.from_bytes(amount, "big", signed=True), unit)
        if isinstance(amount, float) and not math.isfinite(amount):
            # as a Python producer would write it, for the same refusal
            text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        else:
            text = orjson.dumps(fields)
        if len(text) > MAX_RECORD_BYTES:
            detail = f"{len(text)} bytes as JSON; at most {MAX_RECORD_BYTES} are allowed"
            raise Rejected(Reason.RECORD_TOO_LARGE, detail)
        return text

    return to_json


def _quotient(unscaled: int, unit: int) -> float:
    """Return the double nearest to a decimal, as JSON's reader does of its text."""
    try:
        return unscaled / unit
    except OverflowError:
        return math.inf if unscaled > 0 else -math.inf
