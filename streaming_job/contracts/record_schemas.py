"""The schemas of framed transactions: which of them are accepted. Pure.

A schema is accepted if its records can keep the contract of transactions. Of an Avro schema, reading a record
must also take a time and memory in proportion to the record's size: so it may not be recursive, nor have
arrays or maps of items without bytes, of which a few bytes could announce any number, or with few for many
types.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

from streaming_job.contracts import Contract, ContractError, schema, validate

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
DECIMAL, MILLIS = "decimal", "timestamp-millis"
AVRO: Mapping[str, frozenset[str]] = {
    "string": frozenset({"string", "enum"}),
    "number": frozenset({"double", "int", "long", DECIMAL}),  # a float has too few digits for an amount
    "integer": frozenset({"long", MILLIS}),
}
"""Avro types that give a field of the contract its JSON type."""
JSON: Mapping[str, frozenset[str]] = {
    "string": frozenset({"string"}),
    "number": frozenset({"number", "integer"}),
    "integer": frozenset({"integer"}),
}
LOGICAL = "logical"
"""Takes the place of `logicalType`: readers are to give the values that a logical type is made of."""
MOST_TYPES = 2_000
MOST_DEPTH = 32
MOST_SCALE = 38
MOST_NESTING = 100
"""Depth of the JSON; far below what Python reads, because that depends on the caller's stack."""
MOST_TYPES_A_BYTE = 16
"""Types of an array's or map's item, for each of its least bytes: others cost time and memory, not bytes."""
MOST_SYMBOL = 64
"""Characters of the symbols of enums, which a record names with a byte."""


def fields() -> dict[str, str]:
    """Return the fields that a transaction must have, with their JSON types."""
    contract = schema(Contract.TRANSACTION)
    return {name: contract["properties"][name]["type"] for name in contract["required"]}


@dataclass(frozen=True)
class RecordSchema:
    """An accepted schema; two are equal if they read all records alike."""

    schema_id: int
    format: str
    text: str
    avro: Any = field(default=None, compare=False)
    """The Avro schema as `fastavro.parse_schema` gives it, see LOGICAL."""
    named: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The types in it by their full names."""
    scale: int = field(default=0, compare=False)
    """Of an Avro amount that is a decimal: its number of decimals."""


def read(value: bytes) -> RecordSchema:
    """Read a record of the topic of schemas.

    Raises:
        ContractError: the record does not follow record-schema.v1, or its schema is not accepted.
    """
    try:
        event = json.loads(value.decode())
        validate(Contract.RECORD_SCHEMA, event)
        parsed = json.loads(event["schema"])
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not a {Contract.RECORD_SCHEMA}: no JSON: {error}") from error
    if max(_nesting(event), _nesting(parsed)) > MOST_NESTING:
        raise ContractError(f"not a {Contract.RECORD_SCHEMA}: nested more than {MOST_NESTING} deep")
    schema_id, kind, text = event["schema_id"], event["format"], event["schema"]
    try:
        if kind == "avro":
            return RecordSchema(schema_id, kind, text, *_avro(parsed))
        _require_json(parsed)
    except ContractError as fault:
        raise ContractError(f"schema {schema_id}: {fault}") from fault
    except Exception as fault:  # of what has the place of a name, a type or a number, and is none
        raise ContractError(f"schema {schema_id} is no schema ({type(fault).__name__}: {fault})") from fault
    return RecordSchema(schema_id, kind, text)


def _nesting(node: Any) -> int:
    depth, level = 0, [node]
    while level := [
        child
        for each in level
        if isinstance(each, list | dict)
        for child in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth


def _avro(parsed: Any) -> tuple[Any, Mapping[str, Any], int]:
    """Return the last fields of a RecordSchema."""
    named: dict[str, Any] = {}
    try:
        avro = fastavro.parse_schema(_without_logical_types(parsed), named)
    except Exception as fault:  # for what is no schema, it raises what its parts raise
        raise ContractError(f"no Avro schema ({type(fault).__name__}: {fault})") from fault
    _Walk(named).least_bytes(avro, ())
    if not isinstance(avro, dict) or avro["type"] != "record":
        raise ContractError("the schema is no Avro record")
    types = {each["name"]: _branches(each["type"], named) for each in avro["fields"]}
    for name, kind in fields().items():
        _require(name, {_kind(branch) for branch in types.get(name, [])}, AVRO[kind])
    scales = {branch.get("scale", 0) for branch in types["amount"] if _kind(branch) == DECIMAL}
    scale = scales.pop() if scales else 0
    if scales or type(scale) is not int or not 0 <= scale <= MOST_SCALE:
        raise ContractError(f"amount has decimals of different scales, or of one not from 0 to {MOST_SCALE}")
    return avro, named, scale


def _without_logical_types(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_logical_types(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        LOGICAL if name == "logicalType" else name: _without_logical_types(value)
        for name, value in node.items()
        if name != LOGICAL
    }


class _Walk:
    """A walk through all types of an Avro schema, as often as they occur in it."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named, self._count = named, 0

    def least_bytes(self, node: Any, within: tuple[str, ...]) -> int:
        """Return the least number of bytes of a type's values; only whether it is 0 is exact.

        Args:
            within: the types around it; those without names as empty strings.
        """
        self._count += 1
        if self._count > MOST_TYPES or len(within) > MOST_DEPTH:
            raise ContractError(f"more than {MOST_TYPES} types, or more than {MOST_DEPTH} in one another")
        if isinstance(node, list):
            return 1 + sum(self.least_bytes(branch, (*within, "")) for branch in node)
        kind = node if isinstance(node, str) else node["type"]
        match kind:
            case "record" | "error":
                if node["name"] in within:
                    raise ContractError(f"type {node['name']} contains itself")
                inner = (*within, node["name"])
                return sum(self.least_bytes(each["type"], inner) for each in node["fields"])
            case "array":
                self._require_bytes(node["items"], 0, within)
                return 1
            case "map":
                self._require_bytes(node["values"], 1, within)  # the key's length
                return 1
            case "fixed":
                if type(node["size"]) is not int or node["size"] < 1:
                    raise ContractError(f"type {node['name']} has no size")
                return int(node["size"])
            case "enum":
                if max(map(len, node["symbols"])) > MOST_SYMBOL:
                    raise ContractError(f"a symbol of {node['name']} has more than {MOST_SYMBOL} characters")
                return 1
        return int(kind != "null") if kind in PRIMITIVES else self.least_bytes(self._named[kind], within)

    def _require_bytes(self, item: Any, least: int, within: tuple[str, ...]) -> None:
        """Check that the items of an array or map take bytes in proportion to what reading them takes."""
        before = self._count
        least += self.least_bytes(item, (*within, ""))
        if self._count - before > MOST_TYPES_A_BYTE * least:
            raise ContractError("the items of an array or map have too few bytes for their types")


def _branches(node: Any, named: Mapping[str, Any]) -> list[Any]:
    branches = node if isinstance(node, list) else [node]
    return [named.get(branch, branch) if isinstance(branch, str) else branch for branch in branches]


def _kind(node: Any) -> str:
    if isinstance(node, str):
        return node
    kind, logical = str(node["type"]), node.get(LOGICAL)
    if logical is None or kind not in ("bytes", "fixed", "int", "long"):
        return kind
    if (logical == DECIMAL and kind in ("bytes", "fixed")) or (logical == MILLIS and kind == "long"):
        return str(logical)
    return f"{kind} ({logical})"


def _require_json(parsed: Any) -> None:
    properties = parsed.get("properties") if isinstance(parsed, dict) else None
    if not isinstance(properties, dict):
        raise ContractError("the JSON Schema has no properties")
    for name, kind in fields().items():
        _require(name, _json_types(properties.get(name)), JSON[kind])


def _json_types(node: Any) -> set[str]:
    """Return the types that a JSON Schema names for a value."""
    if not isinstance(node, dict):
        return set()
    types = {str(kind) for kind in _branches(node.get("type", []), {})}
    for word in ("anyOf", "oneOf"):
        branches = node.get(word)
        for branch in branches if isinstance(branches, list) else ():
            types |= _json_types(branch)
    return types


def _require(name: str, found: set[str], wanted: frozenset[str]) -> None:
    """Check the types of a field; a null, which a transaction may not have, does no harm in others."""
    types = found - {"null"}
    if not types or not types <= wanted:
        has = f"is {', '.join(sorted(types))}" if types else "is missing, or its type cannot be determined"
        raise ContractError(f"field {name} {has}; a transaction needs {' or '.join(sorted(wanted))}")
