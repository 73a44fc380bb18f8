"""Training from an archive: its directory stands for the transactions, the labels, or the profiles in it.

Records that do not decode are left out, as the stream makes dead letters of them. Arrivals are the records'
timestamps. Profiles are folded as the stream folds them: deletions and invalid columns included.
"""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feature_store.archive.layout import ARCHIVE_FILE, LABEL, MANIFEST_FILE, RECORD, partition_path
from feature_store.archive.layout import PROFILE as ARCHIVED
from feature_store.archive.manifest import Manifest
from feature_store.archive.reader import Archive
from feature_store.kernels.hashing import hash_strings
from feature_store.layout import (
    CHANGES,
    DELETE,
    NO_COUNTRY,
    NO_DAY,
    NO_TIER,
    PROFILE,
    REREAD,
    SNAPSHOT,
    STATUSES,
    TOMBSTONE,
    country_code,
)
from feature_store.training.parquet_files import parquet_files, read_table

DECODES = "event_time"
"""Column of an archived transaction that is null where the record does not decode."""
_TAIL = re.compile(r"_tail-(\d{20})-(\d{20})\.parquet")
_TOPICS = {
    "transactions": ("transactions",),
    "labels": ("labels", "chargebacks"),
    "profiles": ("profiles",),
}


def is_archive(path: Path) -> bool:
    """Return whether a path is an archive's directory."""
    return (path / ARCHIVE_FILE).exists()


def files_of(path: Path, content: str) -> list[Path]:
    """Return the files of an archive that hold some content, tails included, or those of any other path.

    Args:
        content: transactions, labels or profiles.
    """
    if not is_archive(path):
        return parquet_files(path)
    archive = Archive(str(path))
    return [
        path / partition_path(archive.topics[field], partition) / span.name
        for field in _fields(archive, content)
        for partition in archive.partitions(field)
        for span in archive.manifest(field, partition).files()
    ]


def present(file: Path) -> tuple[Path, int | None]:
    """Return a file; or, of a tail that an archiver has replaced since, the longer file, and the tail's end.

    The longer one begins with the tail's records, in the same row groups.
    """
    tail = _TAIL.fullmatch(file.name)
    place = file.parent / MANIFEST_FILE
    if tail is None or file.exists() or not place.exists():
        return file, None
    first, end = map(int, tail.groups())
    spans = Manifest.of_json(place.read_bytes(), str(place)).files()
    return next(((file.parent / span.name, end) for span in spans if span.first == first), (file, None))


def before(table: pa.Table, end: int | None) -> pa.Table:
    """Return the rows of a file that are before an offset, without the offsets; None: all."""
    return table.filter(pc.less(table["offset"], end)).drop_columns("offset") if end is not None else table


def is_archived(names: list[str]) -> bool:
    """Return whether a file with these columns is of an archive."""
    return {"offset", "timestamp", DECODES} <= set(names)


def decodable_rows(metadata: pq.FileMetaData, row_group: int) -> int:
    """Return the number of transactions of a row group that decode."""
    group = metadata.row_group(row_group)
    columns = [group.column(number) for number in range(group.num_columns)]
    (column,) = [column for column in columns if column.path_in_schema == DECODES]
    return int(group.num_rows - column.statistics.null_count)


def decodable(table: pa.Table) -> pa.Table:
    """Return the transactions of an archive's table that decode, with `arrival_time` for `timestamp`."""
    table = table.filter(table[DECODES].is_valid())
    arrivals = table["timestamp"].cast(pa.int64())
    return table.drop_columns("timestamp").append_column("arrival_time", arrivals)


def read_labels(path: Path) -> pa.Table:
    """Read labels: from a file, or from both topics of labels in an archive, in order of arrival."""
    if not is_archive(path):
        return read_table(path)
    archive = Archive(str(path))
    table = pa.concat_tables([_whole(archive, field, LABEL) for field in _fields(archive, "labels")])
    table = table.filter(table["label"].is_valid()).rename_columns({"arrival": "reported_at"})
    return table.take(np.argsort(np.asarray(table["reported_at"]), kind="stable"))


def read_profiles(path: Path) -> pa.Table:
    """Read profiles: from a file, or from an archive, for `transaction_table.profile_records`."""
    return _whole(Archive(str(path)), "profiles", ARCHIVED) if is_archive(path) else read_table(path)


def archived_changes(table: pa.Table) -> NDArray[np.void]:
    """Convert archived changes of profiles to a structured array of PROFILE, in order of arrival."""
    ends = table["arrival"].filter(table["ends_snapshot"])
    end = pc.min(ends).as_py()
    table = table.filter(table["change"].is_valid())
    records = np.zeros(len(table), dtype=PROFILE)
    records["lo"], records["hi"] = hash_strings(table["card_id"].combine_chunks())
    for name in ("partition", "offset", "arrival"):
        records[name] = table[name]
    unknown = {"lsn": 0, "committed": 0, "credit_limit": np.nan, "risk_tier": NO_TIER, "opened_on": NO_DAY}
    for name, value in unknown.items():
        records[name] = pc.fill_null(table[name], value)
    statuses = pc.index_in(table["status"], pa.array(STATUSES))
    records["status"] = pc.fill_null(statuses, 0)
    countries = table["home_country"].to_pylist()
    records["country"] = [NO_COUNTRY if name is None else country_code(name) for name in countries]
    records["change"] = [CHANGES.index(name) for name in table["change"].to_pylist()]
    # a deletion has no columns
    gone = np.isin(records["change"], (DELETE, TOMBSTONE))
    for name in ("credit_limit", "risk_tier", "opened_on", "country"):
        records[name][gone] = 0
    if end is not None:
        later = (records["change"] == SNAPSHOT) & (records["arrival"] > end)
        records["change"][later] = REREAD
    return records[np.argsort(records["arrival"], kind="stable")]


def _fields(archive: Archive, content: str) -> list[str]:
    """Return the topics that hold some content, by field; one of the two of labels may be absent."""
    present = [field for field in _TOPICS[content] if field in archive.topics]
    return present or [content]


def _whole(archive: Archive, field: str, columns: pa.Schema) -> pa.Table:
    """Read a whole topic, partition by partition: `columns`, `offset`, `arrival` (ms) and `partition`."""
    schema = pa.schema([*columns, RECORD.field("offset"), RECORD.field("timestamp")])
    parts = []
    for partition in archive.partitions(field):
        batches = archive.read(field, partition, columns=schema.names)
        table = pa.Table.from_batches(batches, schema)
        arrivals = table["timestamp"].cast(pa.int64())
        numbers = pa.array(np.full(len(table), partition, dtype=np.int16))
        table = table.drop_columns("timestamp").append_column("arrival", arrivals)
        parts.append(table.append_column("partition", numbers))
    return pa.concat_tables(parts)
