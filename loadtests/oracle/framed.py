"""Framed transactions, read with the schemas that had arrived before them, by an Avro reader of its own.

Which schemas are accepted is not judged: `contracts.record_schemas` says it to job and oracle.
"""

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any

from loadtests.oracle import decode
from loadtests.oracle.decode import RefusedError
from loadtests.oracle.records import ExpectedOutcome, Record
from loadtests.oracle.tables import dead_letter
from streaming_job.contracts import ContractError, Reason
from streaming_job.contracts.record_schemas import RecordSchema, fields, read


class SchemaLog:
    """The accepted schemas, in the order of the log; the first with an id holds."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, RecordSchema]] = {}

    def read(self, records: Iterable[Record]) -> list[ExpectedOutcome]:
        """Add schemas; returns the dead letters."""
        reasons = [(record, self._accept(record)) for record in records]
        return [dead_letter(record, reason) for record, reason in reasons if reason is not None]

    def _accept(self, record: Record) -> Reason | None:
        if (reason := decode.unfit(record)) is not None:
            return reason
        try:
            schema = read(record.value or b"")
        except ContractError:
            return Reason.INVALID_VALUE
        _, first = self._known.setdefault(schema.schema_id, (record.timestamp, schema))
        return None if first == schema else Reason.INVALID_VALUE

    def row(self, record: Record) -> Any:
        """Parse a transaction, framed or not, or refuse it.

        Raises:
            RefusedError: a check failed.
        """
        value = record.value or b""
        if len(value) < 5 or value[0] != 0:
            return decode.parse_object(value)
        if len(value) > decode.MAX_RECORD_BYTES:
            raise RefusedError(Reason.RECORD_TOO_LARGE)
        number, payload = int.from_bytes(value[1:5], "big"), value[5:]
        since, schema = self._known.get(number, (math.inf, None))
        if schema is None or record.timestamp < since:
            raise RefusedError(Reason.UNKNOWN_SCHEMA)
        return decode.parse_object(payload) if schema.avro is None else _avro(schema, payload)


def _avro(schema: RecordSchema, payload: bytes) -> Any:
    reader = _Reader(payload, schema.named)
    try:
        record = reader.value(schema.avro)
    except (ValueError, IndexError):
        raise RefusedError(Reason.MALFORMED_AVRO) from None
    if reader.rest():
        raise RefusedError(Reason.MALFORMED_AVRO)
    row = {name: record[name] for name in fields()}
    if row["amount"] == b"":
        raise RefusedError(Reason.MALFORMED_AVRO)
    if isinstance(row["amount"], bytes):
        unscaled = int.from_bytes(row["amount"], "big", signed=True)
        try:
            row["amount"] = unscaled / 10**schema.scale
        except OverflowError:
            row["amount"] = math.inf if unscaled > 0 else -math.inf
    if len(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()) > decode.MAX_RECORD_BYTES:
        raise RefusedError(Reason.RECORD_TOO_LARGE)
    return decode.as_object(row)


class _Reader:
    """A reader of Avro's binary encoding, as lenient as the job's: see `_Reader.value`."""

    def __init__(self, data: bytes, named: Mapping[str, Any]) -> None:
        self._data, self._named = BytesIO(data), named

    def rest(self) -> bytes:
        """Return what was not read."""
        return self._data.read()

    def value(self, node: Any) -> Any:
        """Read a value; an index below 0 counts from the end, and any byte but 0 is true."""
        kind = "union" if isinstance(node, list) else node if isinstance(node, str) else node["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\0"
            case "int" | "long":
                return self._long()
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "bytes":
                return self._take(self._long())
            case "string":
                return self._take(self._long()).decode()
            case "fixed":
                return self._take(node["size"])
            case "enum":
                return node["symbols"][self._long()]
            case "union":
                return self.value(node[self._long()])
            case "array":
                return [self.value(node["items"]) for _ in self._items()]
            case "map":
                return [(self.value("string"), self.value(node["values"])) for _ in self._items()]
            case "record":
                return {field["name"]: self.value(field["type"]) for field in node["fields"]}
        return self.value(self._named[kind])

    def _items(self) -> Iterator[int]:
        while count := self._long():
            if count < 0:
                count = -count if count > -(2**63) else 0  # which has no positive number of 64 bits
                self._long()  # size of the block in bytes
            yield from range(count)

    def _long(self) -> int:
        number = shift = 0
        byte = 0x80
        while byte & 0x80:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift % 64  # as a processor shifts
            shift += 7
        number &= 2**64 - 1
        return (number >> 1) ^ -(number & 1)

    def _take(self, size: int) -> bytes:
        data = self._data.read(size) if size >= 0 else b""
        if len(data) != size:
            raise ValueError("the data are cut off")
        return data
