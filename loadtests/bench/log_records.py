"""Simulated transactions in the form in which a job fetches them, without a broker."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from loadtests.simulator.batch import EventBatch
from streaming_job.contracts.topics import Topics
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Records

ONE_PARTITION = KeyGroups(Partitioner.MURMUR2, partitions=1, groups=1)
"""Partitions and key groups of the records."""


def log_records(batches: Iterable[EventBatch]) -> Records:
    """Return the records of some transactions, in one partition."""
    keys, values, arrivals = [], [], []
    for batch in batches:
        more_keys, more_values = batch.encode()
        keys += more_keys
        values += more_values
        arrivals.append(batch.arrival)
    return Records(
        Topics().transactions,
        np.zeros(len(values), dtype=np.int32),
        np.arange(len(values), dtype=np.int64),
        np.concatenate(arrivals),
        pa.array(keys, type=pa.binary()),
        pa.array(values, type=pa.binary()),
    )
