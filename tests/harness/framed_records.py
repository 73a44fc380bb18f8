"""Framed transactions as producers with a schema registry write them, and the schemas in the job's topic."""

import json
from io import BytesIO
from random import Random
from typing import Any

import fastavro

from harness.log_world import START, LogWorld

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
JAVA_STRING = {"type": "string", "avro.java.string": "String"}


def avro_schema(*more: dict[str, Any], **types: Any) -> dict[str, Any]:
    """A record of the fields that a transaction needs, by default of plain types, and of more fields."""
    plain = dict.fromkeys(
        ("transaction_id", "card_id", "merchant_id", "amount", "currency", "country", "event_time"), "string"
    )
    fields = {**plain, "amount": "double", "event_time": "long", **types}
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Transaction", "namespace": "bank", "fields": [*named, *more]}


RICH = avro_schema(
    {"name": "terminal", "type": ["null", {"type": "record", "name": "Terminal", "fields": [
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "previous", "type": ["null", "Id"]},
    ]}], "default": None},
    {"name": "notes", "type": {"type": "map", "values": ["null", "boolean", "float", "int"]}, "default": {}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    card_id=JAVA_STRING,
    merchant_id=["null", "string"],
    amount=DECIMAL,
    currency={"type": "enum", "name": "Currency", "symbols": ["EUR", "USD", "GBP"]},
    event_time=MILLIS,
)  # fmt: skip
"""A schema as of Java's code generator, with types and fields that the job does not need."""
JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("transaction_id", "card_id", "currency", "country")},
        "merchant_id": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "amount": {"type": "number"},
        "event_time": {"type": "integer"},
    },
}


def event(schema_id: int, schema: Any, kind: str = "avro") -> bytes:
    """A record of the topic of schemas."""
    fields = {"schema_version": 1, "schema_id": schema_id, "format": kind, "schema": json.dumps(schema)}
    return json.dumps(fields).encode()


def frame(schema_id: int, payload: bytes) -> bytes:
    """A value in the wire format."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema_id: int, schema: Any, fields: dict[str, Any]) -> bytes:
    """A framed Avro record; logical types are given as Avro's specification maps them to Python."""
    payload = BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(schema), fields)
    return frame(schema_id, payload.getvalue())


def frame_some(world: LogWorld, rng: Random) -> None:
    """Frame about half of a log's transactions; their schemas arrive early, late or never."""
    last = max(record.timestamp for record in world.transactions) - START
    events = [event(1, avro_schema()), event(2, JSON_SCHEMA, "json"), event(3, avro_schema())]
    broken = [None, b"{", event(1, RICH), event(4, avro_schema(amount="float")), events[0]]
    for arrival in sorted(rng.randrange(-1_000, last + 1) for _ in range(6)):
        value = events.pop(0) if events and rng.random() < 0.6 else rng.choice(broken)
        world.raw_schema(value, arrival, rng.choice((0, 0, 0, 0, 1)))
    world.transactions = [
        record._replace(value=_framed(record.value, rng)) if rng.random() < 0.5 else record
        for record in world.transactions
    ]


def _framed(value: bytes | None, rng: Random) -> bytes | None:
    if value is None:
        return None
    number = rng.choice((1, 1, 2, 2, 3, 5))
    if number == 2 or rng.random() < 0.1:
        return frame(number, value)
    try:
        framed = avro(number, avro_schema(), json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError):  # no fields to write
        return frame(number, value)
    return framed[: rng.choice((None, None, None, None, None, None, -3))]
