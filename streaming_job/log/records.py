"""Fetched records, in columns."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PartitionId = tuple[str, int]
"""(topic, partition)."""
Offsets = dict[PartitionId, int]
"""Offset by partition."""


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

    def __len__(self) -> int:
        return self.offsets.size

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
        )
