"""The layout of an archive: names, columns, and the rule by which the log is cut into files. Pure.

    _archive.json                                                  the topics, by field of the table of topics
    <topic>/partition=<p>/_manifest.json                           the files that count
    <topic>/partition=<p>/day=<YYYY-MM-DD>/<first>-<end>.parquet   offsets `first` to before `end`
    <topic>/partition=<p>/_tail-<first>-<end>.parquet              the newest records, until a file is full

Readers of Parquet directories (pyarrow, pandas, Spark) skip names that begin with `_`, so all that they read
of an archive are files that do not change. Where a file ends follows from the records alone (`RANGE`,
`MOST_BYTES`, the day), so two archivers write the same files.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.catalogue import DAY_MS
from feature_store.errors import FraudError

FORMAT = 1
ARCHIVE_FILE = "_archive.json"
MANIFEST_FILE = "_manifest.json"
RANGE = 1 << 20
"""A file ends at each multiple of this offset."""
MOST_BYTES = 512 << 20
"""A file ends after the record with which its keys and values reach so many bytes."""
GROUP_ROWS = 1 << 15
"""Rows of a row group."""
GROUP_BYTES = 32 << 20
"""A row group ends after the record with which its keys and values reach so many bytes."""

_EPOCH = date(1970, 1, 1).toordinal()
Numbers = NDArray[np.int64]
_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
RECORD = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        ("key", pa.binary()),
        ("value", pa.binary()),
        pa.field("headers", pa.list_(_HEADER), nullable=False),
    ]
)
"""A record as Kafka has it; `timestamp` is its arrival if the brokers set it."""
TRANSACTION = pa.schema(
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
"""Further columns of a transaction: fields of its contract, as the stream decodes them; all are null where a
record does not decode. `value` has what the record really contains."""
LABEL = pa.schema([("transaction_id", pa.string()), ("card_id", pa.string()), ("label", pa.string())])
"""Further columns of a label or chargeback; `label` is `fraud`, `genuine`, or null where the record says
neither, or does not decode."""
PROFILE = pa.schema(
    [
        ("card_id", pa.string()),
        ("change", pa.string()),
        ("status", pa.string()),
        ("home_country", pa.string()),
        ("credit_limit", pa.float64()),
        ("risk_tier", pa.int16()),
        ("opened_on", pa.int32()),
        ("lsn", pa.int64()),
        ("committed", pa.int64()),
        ("ends_snapshot", pa.bool_()),
    ]
)
"""Further columns of a change of a profile. `change` is `snapshot`, `upsert`, `reread`, `delete`,
`tombstone`, or null where the record does not decode; a null in another column is a value that is unknown."""
COLUMNS = {
    "transactions": pa.schema([*RECORD, *TRANSACTION]),
    "profiles": pa.schema([*RECORD, *PROFILE]),
    "labels": pa.schema([*RECORD, *LABEL]),
    "chargebacks": pa.schema([*RECORD, *LABEL]),
}
"""Columns of a topic's files, by its field of the table of topics; those of other topics are RECORD."""

_REPEATED = (
    "key", "headers.list.element.key", "headers.list.element.value", "card_id", "merchant_id", "currency",
    "country",
)  # fmt: skip
"""Columns whose values repeat."""
_ENCODINGS = {
    "offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED", "value": "PLAIN",
    "transaction_id": "DELTA_BYTE_ARRAY", "event_time": "DELTA_BINARY_PACKED",
}  # fmt: skip


class ArchiveError(FraudError):
    """An archive is missing, damaged, of another release's format, or does not hold what is asked of it."""


def columns(field: str) -> pa.Schema:
    """Return the columns of a topic's files.

    Args:
        field: name of the topic's field in the table of topics.
    """
    return COLUMNS.get(field, RECORD)


def partition_path(topic: str, partition: int) -> str:
    """Return the directory of a partition's files, relative to the archive."""
    return f"{topic}/partition={partition}"


def file_name(first: int, end: int, day: str) -> str:
    """Return the name of a whole file, relative to its partition's directory."""
    return f"day={day}/{first:020}-{end:020}.parquet"


def tail_name(first: int, end: int) -> str:
    """Return the name of a tail, relative to its partition's directory."""
    return f"_tail-{first:020}-{end:020}.parquet"


def limit_of(first: int) -> int:
    """Return the offset at which a file that begins at `first` ends at the latest."""
    return (first // RANGE + 1) * RANGE


def day_of(arrival_ms: int) -> str:
    """Return the day of an arrival (UTC), as YYYY-MM-DD.

    Arrivals after 9999-12-31 count as of that day: producers may set timestamps in microseconds.
    """
    day = arrival_ms // DAY_MS + _EPOCH
    return date.fromordinal(min(max(day, date.min.toordinal()), date.max.toordinal())).isoformat()


@dataclass(frozen=True)
class Arrivals:
    """A range of arrivals, ms."""

    first: int
    end: int
    """Not included."""


@dataclass(frozen=True)
class Cut:
    """The part of a batch that a file or a row group takes."""

    rows: int
    """Number of rows, from the batch's first one on."""
    is_end: bool
    """Whether it ends before the next row."""
    is_full: bool
    """Whether it ends after its last row, whatever follows."""


def cut_file(offsets: Numbers, days: Numbers, sizes: Numbers, limit: int, day: int, room: int) -> Cut:
    """Return the part of a batch that the current file takes.

    Arrivals of a partition may go back a little, for example when another broker leads it, so a file takes
    records of earlier days than its first record's; it ends before the first record of a later day.

    Args:
        offsets: n rows, ascending.
        days: day of each arrival, counted from 1970-01-01.
        sizes: bytes of key and value.
        day: the day of the file's first record.
        room: bytes that the file still takes.
    """
    full = _first(np.cumsum(sizes) >= room) + 1
    rows = min(int(np.searchsorted(offsets, limit)), _first(days > day), full, offsets.size)
    return Cut(rows, rows < offsets.size, rows == full)


def cut_group(sizes: Numbers, rows: int, room: int) -> Cut:
    """Return the part of a batch that the current row group takes.

    Args:
        sizes: bytes of key and value of n rows.
        rows: rows that it still takes.
        room: bytes that it still takes.
    """
    full = min(rows, _first(np.cumsum(sizes) >= room) + 1)
    taken = min(full, sizes.size)
    return Cut(taken, taken < sizes.size, taken == full)


def _first(mask: NDArray[np.bool_]) -> int:
    """Return the index of the first true value, or the length without one."""
    return int(mask.argmax()) if mask.any() else mask.size


def writer_options(names: Collection[str]) -> dict[str, object]:
    """Return the options of pyarrow's ParquetWriter for files with these columns."""
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": [name for name in _REPEATED if name.partition(".")[0] in names],
        "column_encoding": {name: encoding for name, encoding in _ENCODINGS.items() if name in names},
        "write_statistics": [name for name in ("offset", "timestamp", "event_time") if name in names],
    }
