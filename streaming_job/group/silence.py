"""Silence: up to which offset (Q) the output of an input's records is written already. Pure.

A group decides the records before Q in silence, which updates only its state. After a takeover Q of a table
depends on the card: each key group of the predecessor has reported the dead letters of its own cards, up to
its own position in the table. A card's home is the partition of the transactions to which it belongs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from streaming_job.log.records import Offsets, PartitionId


@dataclass(frozen=True)
class Silence:
    """Q of all inputs of a key group."""

    output: Offsets
    """Q by partition; of the tables the least of all homes."""
    by_home: Mapping[int, Offsets] = field(default_factory=dict)
    """For homes whose Q of a table is greater: their Q of the tables."""

    def raised_to(self, output: Offsets) -> "Silence":
        """Return the same, with a Q that is nowhere less than `output`."""
        greater = {tp: max(end, self.output.get(tp, 0)) for tp, end in output.items()}
        return replace(self, output={**self.output, **greater}) if greater else self

    def before(self, tp: PartitionId, home: int = 0) -> int:
        """Return Q of a partition.

        Args:
            home: for a table, the home of the record's card; 0 for records that group 0 reports.
        """
        least = self.output.get(tp, 0)
        return max(least, self.by_home[home].get(tp, 0)) if home in self.by_home else least

    def of_rows(
        self, topic: str, partitions: NDArray[np.int32], homes: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Return Q of each row of a table, shape (n,).

        Args:
            partitions: the row's partition of the topic, shape (n,).
            homes: see `before`, shape (n,).
        """
        pairs, rows = np.unique(np.stack((partitions, homes)), axis=1, return_inverse=True)
        before = [self.before((topic, int(partition)), int(home)) for partition, home in pairs.T]
        return np.array(before, dtype=np.int64)[rows.reshape(-1)]
