"""The types of the columns of transactions, profiles and labels: one set of rules for all files and tables.

The same data comes in many types: pandas writes an integer column that once had a gap as floats, databases
export ids as UUID or decimal, Spark writes timestamps in microseconds. `convert` accepts a type if its values
have one meaning only; it refuses everything else, and names column, type and remedy.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.errors import FraudError

Column: TypeAlias = pa.ChunkedArray
_Rule = Callable[[str, Column], Column]
MOST_EXACT = 1 << 53
"""From this number on, a float64 may have lost the last digits of an integer."""
_WRITE_TEXT = "write it as text"
_WRITE_TIME = "give ms since 1970-01-01 UTC, or a timestamp"


class TrainingSetError(FraudError):
    """A file of transactions, labels or profiles is unreadable, would be left out, or breaks the contract."""


def convert(name: str, column: Column) -> Column:
    """Convert a column of a contract to its one type; the conversion of a converted column does nothing.

    Args:
        name: name of the column, as in the contracts; others are returned as they are.
        column: values of any type; NaN in a column that is no amount counts as null.

    Returns:
        A column of string, float64, int32, int64 (ms since 1970-01-01 UTC) or, for labels, int8 (1 fraud, 0
        genuine); nulls stay nulls.
    """
    rule = _RULES.get(name)
    return column if rule is None else rule(name, _plain(column))


def converted(table: pa.Table, names: Iterable[str] | None = None) -> pa.Table:
    """Return a table with converted columns.

    Args:
        names: the columns to keep; default: all.

    Raises:
        TrainingSetError: see `convert`; or a column that is kept is there twice.
    """
    kept = table.column_names if names is None else list(names)
    require_unique(kept if names is None else [name for name in table.column_names if name in kept])
    return pa.table({name: convert(name, table[name]) for name in kept})


def require_unique(names: list[str], where: str = "the table") -> None:
    """Raise TrainingSetError if a column is there twice."""
    for name in names:
        if names.count(name) > 1:
            raise TrainingSetError(
                f"{where} has the column {name} {names.count(name)} times; keep one of them"
            )


def _plain(column: Column) -> Column:
    """Decode dictionaries, and take the stored values of extension types; UUIDs become text."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks])
    if isinstance(column.type, pa.BaseExtensionType):
        is_uuid = column.type.extension_name == "arrow.uuid"
        storage = column.type.storage_type
        chunks = [_uuid_text(chunk.storage) if is_uuid else chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(chunks, pa.string() if is_uuid else storage)
    return column


def _uuid_text(storage: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return UUIDs, 16 bytes each, in their canonical form of 36 characters."""
    n = len(storage)
    raw = np.frombuffer(storage.buffers()[1], np.uint8)[storage.offset * 16 : (storage.offset + n) * 16]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((n, 36), ord("-"), np.uint8)
    places = [place for place in range(36) if place not in (8, 13, 18, 23)]
    text[:, places] = digits[np.stack([raw >> 4, raw & 15], axis=1)].reshape(n, 32)
    ends = pa.py_buffer(np.arange(0, (n + 1) * 36, 36, dtype=np.int32))
    whole = pa.StringArray.from_buffers(n, ends, pa.py_buffer(text))
    return pc.if_else(storage.is_valid(), whole, pa.scalar(None, pa.string()))


def _text(name: str, column: Column) -> Column:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _cast(name, column, pa.string(), _WRITE_TEXT)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _cast(name, column, pa.string(), _WRITE_TEXT)  # Spark and Impala may write text like this
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _whole(name, column, _WRITE_TEXT).cast(pa.string())
    raise _refused(name, kind, _WRITE_TEXT)


def _number(name: str, column: Column) -> Column:
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (is_number or is_text or pa.types.is_null(kind)):
        raise _refused(name, kind, "write it as numbers")
    return _cast(name, column, pa.float64(), "write it as numbers")


def _integer(name: str, column: Column) -> Column:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_date64(column.type):
        return column.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_boolean(column.type):
        raise _refused(name, column.type, "write it as integers")
    return _cast(name, _whole(name, column, "write it as integers"), pa.int32(), "write it as integers")


def _time(name: str, column: Column) -> Column:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # floors, also before 1970; overflow of seconds is an error
        return _cast(name, column, pa.timestamp("ms", kind.tz), _WRITE_TIME, safe=False).cast(pa.int64())
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        if pa.types.is_null(kind):
            return column.cast(pa.int64())
        raise _refused(name, kind, _WRITE_TIME)
    return _whole(name, column, _WRITE_TIME).cast(pa.int64())


def _label(name: str, column: Column) -> Column:
    kind, remedy = column.type, "give fraud/genuine, 1/0 or true/false"
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_string(kind):
        column = column.cast(pa.string())
        allowed: set[object] = {"fraud", "genuine"}
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.int8())
    else:
        column, allowed = _whole(name, column, remedy), {0, 1}
    unknown = {value for value in pc.unique(column).to_pylist() if value is not None} - allowed
    if unknown:
        raise TrainingSetError(f"column {name} holds {min(unknown)!r}; {remedy}")
    if allowed != {0, 1}:
        column = pc.equal(column, "fraud")
    return column.cast(pa.int8())


def _whole(name: str, column: Column, remedy: str) -> Column:
    """Convert numbers to integers, if they are whole; NaN becomes null."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_null(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
        size = pc.max(pc.abs(column)).as_py()
        if size is not None and size >= MOST_EXACT:
            raise TrainingSetError(
                f"column {name} is {kind} and holds {size:.0f}, whose last digits a float may have lost; "
                f"{remedy} at its source"
            )
        return _cast(name, column, pa.int64(), remedy)
    if pa.types.is_decimal(kind):
        return _cast(name, column, pa.decimal128(38, 0), remedy)
    raise _refused(name, kind, remedy)


def _cast(name: str, column: Column, to: pa.DataType, remedy: str, *, safe: bool = True) -> Column:
    try:
        return column.cast(to, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise TrainingSetError(f"column {name}, {column.type}, is not {to} ({reason}); {remedy}") from None


def _refused(name: str, kind: pa.DataType, remedy: str) -> TrainingSetError:
    return TrainingSetError(f"column {name} is {kind}; {remedy}")


TIMES = ("event_time", "arrival_time", "reported_at", "occurred_at")
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(
        (
            "transaction_id", "card_id", "merchant_id", "currency", "country", "channel", "mcc",
            "home_country", "status", "kind", "verdict", "reason", "source", "maturity",
        ),
        _text,
    ),
    **dict.fromkeys(("amount", "credit_limit"), _number),
    **dict.fromkeys(("risk_tier", "opened_on"), _integer),
    **dict.fromkeys(TIMES, _time),
    "label": _label,
    # the Fraud Detection Handbook's
    **dict.fromkeys(("TRANSACTION_ID", "CUSTOMER_ID", "TERMINAL_ID"), _text),
    "TX_AMOUNT": _number,
    "TX_FRAUD": _label,
}  # fmt: skip


def flags(labels: Column) -> NDArray[np.bool_]:
    """Return whether each converted label is fraud, shape (n,); null is not fraud."""
    return np.asarray(pc.fill_null(labels, 0)).astype(np.bool_)
