"""Archived records as records of a log. Pure: imports no Kafka client."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streaming_job.log.records import Records


def records_of(topic: str, batches: Mapping[int, pa.RecordBatch]) -> Records:
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
