"""The records of a table keyed by card that belong to one key group: those whose keys name its own cards.

Every group reads all partitions of a table, so exactly one group handles each record.
"""

from collections.abc import Iterator

import numpy as np

from streaming_job.dead_letters.record import LogRecord
from streaming_job.log.partitioner import KeyGroups
from streaming_job.log.records import Records


def own_records(records: Records, key_groups: KeyGroups, group: int) -> Iterator[LogRecord]:
    """Yield the records of one key group, in the records' order.

    Args:
        records: records of a table whose keys are card ids.
    """
    rows = np.flatnonzero(key_groups.partitions_of(records.keys) % key_groups.groups == group)
    selected = records.take(rows)
    for row in zip(
        selected.partitions.tolist(),
        selected.offsets.tolist(),
        selected.arrivals.tolist(),
        selected.keys.to_pylist(),
        selected.values.to_pylist(),
        strict=True,
    ):
        yield LogRecord(records.topic, *row)
