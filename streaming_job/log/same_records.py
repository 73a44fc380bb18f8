"""The check that a log still holds the last records that were read of it. Pure.

A log that has lost its tail, in an unclean election or in a power cut of its only replica, may have been
filled again before anybody looks. Its first and end offsets then look right, and only its records tell.
"""

from collections.abc import Mapping

from streaming_job.log.errors import LogError
from streaming_job.log.records import Arrived, Offsets, PartitionId, name_of


def require_same_records(read: Mapping[PartitionId, Arrived], arrivals: Offsets) -> None:
    """Check that the log holds, where there was a record, the same one or none.

    Args:
        read: the last record read, by partition.
        arrivals: arrival of the record that now has its offset, ms; without partitions where none has it,
            because compaction or retention has removed it.

    Raises:
        LogError: a partition holds another record.
    """
    for tp, record in sorted(read.items()):
        if (arrival := arrivals.get(tp, record.arrival)) != record.arrival:
            raise LogError(
                f"{name_of(tp)} holds another record at offset {record.offset} than when it was read "
                f"(arrived at {arrival} ms, not {record.arrival}): the topic has lost its newest records, "
                "and later ones have got their offsets; restore it, or use another job id, or archive"
            )
