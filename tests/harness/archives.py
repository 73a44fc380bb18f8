"""Archives without a broker: records as batches, and an archive of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from feature_store.archive import commit
from feature_store.archive.file_writer import Decode
from feature_store.archive.layout import RECORD, columns, partition_path
from feature_store.archive.manifest import Kind, Manifest
from feature_store.archive.partition_writer import PartitionWriter
from feature_store.archive.storage import NewFile, Storage

Row = tuple[int, int, bytes | None, bytes | None]
"""(offset, arrival in ms, key, value)."""


def batch(rows: Sequence[Row], headers: Sequence[tuple[str, bytes | None]] = ()) -> pa.RecordBatch:
    """The rows as records (RECORD), all with the same headers."""
    fields = [{"key": key, "value": value} for key, value in headers]
    arrays = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.timestamp("ms", "UTC")),
        pa.array([row[2] for row in rows], pa.binary()),
        pa.array([row[3] for row in rows], pa.binary()),
        pa.array([fields] * len(rows), RECORD.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD)


def write(
    place: Path,
    topics: Mapping[str, Mapping[int, Sequence[pa.RecordBatch]]],
    decode: Mapping[str, Decode] | None = None,
    *,
    position: int | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """Write an archive: the records of each topic's partitions, by the topic's field; the rest is the tail.

    The topics have `names`, by default their fields'. `decode` computes the further columns of topics that
    have some. Offsets to before `position` are passed, whether they have records or not.
    """
    storage = Storage(str(place))
    names = {field: (names or {}).get(field, field) for field in topics}
    commit.create(storage, names)
    for field, partitions in topics.items():
        for partition, batches in partitions.items():
            first = int(batches[0]["offset"][0].as_py()) if batches else 0
            commit.begin(storage, Manifest(names[field], partition, "id", False, begin=first))
            own_decode, topic = (decode or {}).get(field), names[field]
            writer = partition_writer(storage, field, partition, first, own_decode, topic=topic)
            finished = [each for records in batches for each in writer.add(records)]
            if position is not None:
                finished += writer.passed(position)
            if tail := writer.finish(Kind.TAIL):
                finished.append(tail)
            for each in finished:
                commit.commit(storage, names[field], partition, each, lambda _: None)


def partition_writer(
    storage: Storage,
    field: str,
    partition: int,
    first: int,
    decode: Decode | None = None,
    *,
    topic: str | None = None,
) -> PartitionWriter:
    """A writer of a partition of a topic; by default the topic has its field's name."""
    further = columns(field).names[len(RECORD) :]

    def nulls(records: pa.Table) -> list[pa.Array]:
        return [pa.nulls(len(records), columns(field).field(name).type) for name in further]

    def new_file() -> NewFile:
        directory = partition_path(topic or field, partition)
        with storage.locked(directory):
            return storage.new_file(directory)

    return PartitionWriter(new_file, first, columns(field), decode or nulls)
