"""Fetched records, in columns; offsets by partition, and their text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PartitionId = tuple[str, int]
"""(topic, partition)."""
Offsets = dict[PartitionId, int]
"""Offset by partition."""


class Arrived(NamedTuple):
    """A record of a partition: its offset, and its arrival in ms."""

    offset: int
    arrival: int


Arrivals = dict[PartitionId, int | None]
"""Arrival, ms, of the record at an offset, by partition; None: no record has this offset."""


def name_of(tp: PartitionId) -> str:
    """Return a partition as text."""
    return f"{tp[0]}-{tp[1]}"


def text_of(offsets: Mapping[PartitionId, int]) -> str:
    """Return offsets by partition as text, in the order of partitions."""
    return ", ".join(f"{name_of(tp)}@{offset}" for tp, offset in sorted(offsets.items()))


@dataclass(frozen=True)
class Records:
    """Committed records of one topic, n of them: partition by partition, each in the order of offsets."""

    topic: str
    partitions: NDArray[np.int32]
    """Shape (n,), ascending."""
    offsets: NDArray[np.int64]
    """Shape (n,)."""
    arrivals: NDArray[np.int64]
    """Kafka timestamps, ms, shape (n,)."""
    keys: pa.BinaryArray
    """n rows; null where a record has none."""
    values: pa.BinaryArray
    """n rows; null where a record has none."""
    headers: pa.ListArray | None = None
    """n rows, lists of structs of `key` (string) and `value` (binary); None: they were not asked for."""

    def __len__(self) -> int:
        return self.offsets.size

    def newest(self) -> dict[PartitionId, Arrived]:
        """Return the last record of each partition that has any."""
        if not len(self):
            return {}
        last = [*np.flatnonzero(self.partitions[1:] != self.partitions[:-1]), -1]
        rows = (self.partitions[last].tolist(), self.offsets[last].tolist(), self.arrivals[last].tolist())
        return {(self.topic, part): Arrived(*record) for part, *record in zip(*rows, strict=True)}

    def take(self, rows: NDArray[np.int64]) -> "Records":
        """Return the records of `rows`, in that order."""
        chosen = pa.array(rows)
        return Records(
            self.topic,
            self.partitions[rows],
            self.offsets[rows],
            self.arrivals[rows],
            self.keys.take(chosen),
            self.values.take(chosen),
            None if self.headers is None else self.headers.take(chosen),
        )


def archived(topic: str, batches: Mapping[int, pa.RecordBatch]) -> Records:
    """Return archived records, by partition, as those of a log; without the column `key` keys are null."""
    partitions = sorted(batches)
    whole = pa.Table.from_batches([batches[partition] for partition in partitions]).combine_chunks()
    has_keys = "key" in whole.schema.names
    return Records(
        topic,
        np.repeat(np.array(partitions, np.int32), [batches[partition].num_rows for partition in partitions]),
        # copies: kernels would be compiled again for read-only arrays
        np.array(whole["offset"], np.int64),
        np.array(whole["timestamp"].cast(pa.int64()), np.int64),
        whole["key"].chunk(0) if has_keys else pa.nulls(len(whole), pa.binary()),
        whole["value"].chunk(0),
    )
