"""Parsing of output records (JSON) into Arrow columns. Pure."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, json

from deploy.replay.record import ReplayError
from feature_store.merchants.catalogue import ALL_NAMES

_SOURCE = pa.struct({"topic": pa.string(), "partition": pa.int64(), "offset": pa.int64()})
ALERT = pa.schema(
    {
        "card_id": pa.string(),
        "transaction_id": pa.string(),
        "merchant_id": pa.string(),
        "amount": pa.float64(),
        "currency": pa.string(),
        "arrival_time": pa.int64(),
        "decision": pa.string(),
        "rules": pa.list_(pa.string()),
        "score": pa.float64(),
        "policy": pa.string(),
        "reasons": pa.list_(pa.struct({"feature": pa.string()})),
        "model": pa.struct({"name": pa.string(), "version": pa.string(), "digest": pa.string()}),
        "release": pa.string(),
        "profile": pa.struct({"partition": pa.int64(), "offset": pa.int64()}),
        "suspicious_count": pa.struct({"day": pa.int64(), "total": pa.int64()}),
        "source": _SOURCE,
    }
)
LETTER = pa.schema({**{field.name: field.type for field in _SOURCE}, "reason": pa.string()})
SHADOW = pa.schema({"source": _SOURCE, "rollout_id": pa.string(), "challenger": pa.string()})
_FEATURES = pa.schema({"features": pa.struct(dict.fromkeys(ALL_NAMES, pa.float64()))})
_BLOCK = 8 << 20
Ranges = Mapping[int, tuple[int, int]]
"""First offset and end of the compared transactions, by partition."""
OFFSET_BITS = 44
"""Bits of an offset in a key; the bits above are the partition."""


def parse(values: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    """Return the fields of a schema as columns, and the records themselves as the column `value`.

    Args:
        values: records, JSON objects without line breaks, large_binary, n rows.

    Raises:
        ReplayError: a record is no JSON object, or a field has another type.
    """
    if not len(values):
        return schema.append(pa.field("value", pa.large_binary())).empty_table()
    end, nothing = (pa.scalar(text, pa.large_binary()) for text in (b"\n", b""))
    lines = compute.binary_join_element_wise(values.combine_chunks(), nothing, end)  # a new array, offset 0
    text = lines.buffers()[2].slice(0, compute.sum(compute.binary_length(lines)).as_py())
    options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = json.read_json(pa.BufferReader(text), json.ReadOptions(block_size=_BLOCK), options)
    except pa.ArrowInvalid as fault:
        raise ReplayError(
            f"an output topic has records that are not the job's ({fault}); find out who writes to it"
        ) from fault
    return table.append_column("value", values)


def keys(source: Mapping[str, pa.ChunkedArray] | pa.Table) -> NDArray[np.int64]:
    """Return a number for each row of columns `partition` and `offset` that no other input record has."""
    partition, offset = (source[name].to_numpy() for name in ("partition", "offset"))
    combined: NDArray[np.int64] = (partition.astype(np.int64) << OFFSET_BITS) | offset.astype(np.int64)
    return combined


def within(table: pa.Table, source: pa.Table, ranges: Ranges, topic: str) -> pa.Table:
    """Return the rows whose input is a record of a topic in the ranges, sorted by it, with a column `key`.

    Args:
        source: topic, partition and offset of each row of the table.
    """
    limits = np.zeros((max(ranges, default=0) + 1, 2), dtype=np.int64)
    for part, bounds in ranges.items():
        limits[part] = bounds
    partition, offset = source["partition"].to_numpy(), source["offset"].to_numpy()
    is_within = compute.equal(source["topic"], topic).to_numpy() & (partition < len(limits))
    start, end = limits[partition[is_within]].T
    is_within[is_within] = (offset[is_within] >= start) & (offset[is_within] < end)
    rows = np.flatnonzero(is_within)
    key = keys(source)[rows]
    order = np.argsort(key, kind="stable")
    return table.take(pa.array(rows[order])).append_column("key", pa.array(key[order]))


def source_of(table: pa.Table) -> pa.Table:
    """Return the fields of the column `source` as a table; of a dead letter it has them itself."""
    if "source" not in table.column_names:
        return table.select(["topic", "partition", "offset"])
    return pa.table(
        {name: compute.struct_field(table["source"], name) for name in ("topic", "partition", "offset")}
    )


def features(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return the features of alerts, shape (n, len(ALL_NAMES)); NaN where an alert has none."""
    if not len(values):
        return np.empty((0, len(ALL_NAMES)))
    column = parse(values, _FEATURES)["features"]
    return np.column_stack([compute.struct_field(column, name).to_numpy() for name in ALL_NAMES])
