"""Arrival of waiting records, estimated where a topic's timestamps are the producer's (CreateTime).

With LogAppendTime the broker stamps a record when it arrives. With CreateTime the stamp is the producer's: in
a replay of an archive it is years old, and says nothing about the wait. So the arrival is taken as the time
of the first sample at which the partition's end offset was beyond the record. For records that were there
before the sidecar started, that is the time of its first sample.
"""

from dataclasses import dataclass, field

from streaming_job.log.records import PartitionId

MOST = 5_000
"""Maximum number of looks kept per partition: nearly three hours of growth at one look every two seconds."""


@dataclass
class Waiting:
    """History of the partitions' end offsets."""

    ends: dict[PartitionId, list[tuple[int, int]]] = field(default_factory=dict)
    """Partition -> (end offset, ms when it was first seen), both ascending."""

    def see(self, partition: PartitionId, position: int, end: int, now_s: float) -> None:
        """Add a look.

        Args:
            position: offset that is processed next; records before it no longer wait.
            end: offset that the next record will get.
        """
        ends = self.ends.setdefault(partition, [])
        if not ends or end > ends[-1][0]:
            ends.append((end, int(now_s * 1000)))
        while len(ends) > 1 and ends[0][0] <= position:
            del ends[0]
        if len(ends) > MOST:
            del ends[1::2]  # drop every second look: half the resolution

    def since_ms(self, partition: PartitionId, offset: int) -> int:
        """Return the time of the first sample at which the record at an offset existed, ms."""
        ends = self.ends[partition]
        return next((seen for end, seen in ends if end > offset), ends[-1][1])
