"""The check that a log still holds the last records that were read of it.

A log that has lost its tail, in an unclean election or in a power cut of its only replica, may have been
filled again before anybody looks. Its first and end offsets then look right, and only its records tell.
"""

from collections.abc import Callable, Collection, Mapping

from streaming_job.log.errors import LogError
from streaming_job.log.records import Arrivals, Arrived, Offsets, PartitionId, name_of


def require_same_records(
    read: Mapping[PartitionId, Arrived], ask: Callable[[Offsets], Arrivals], compacted: Collection[str]
) -> None:
    """Check that the log holds the records that were read, as far as its bounds include their offsets.

    Args:
        read: the last record read, by partition.
        ask: returns the arrivals of what is at some offsets now; see `EndOffsets.arrivals`.
        compacted: topics that may lack a record, because compaction has removed it.

    Raises:
        LogError: a partition holds another record, or none.
    """
    arrivals = ask({tp: record.offset for tp, record in read.items()})
    for tp, record in sorted(read.items()):
        arrival = arrivals.get(tp, record.arrival)
        if arrival == record.arrival or (arrival is None and tp[0] in compacted):
            continue
        found = "no record" if arrival is None else f"a record that arrived at {arrival} ms"
        raise LogError(
            f"{name_of(tp)} holds {found} at offset {record.offset}, and not the one that was read there and "
            f"arrived at {record.arrival} ms: the topic has lost its newest records, and later ones have got "
            "their offsets, or it was restored with other timestamps; restore it as it was, or use another "
            "job id, or archive"
        )
