"""The follower of a key group's own partitions of the transactions."""

from functools import partial

from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.follower import PartitionFollower
from streaming_job.log.records import Offsets, Records


class OwnPartitions:
    """A follower of partitions that can also look up the end offsets of their topics."""

    def __init__(self, log: PartitionFollower, ends: EndOffsets) -> None:
        """Begin to fetch.

        Args:
            log: follows the partitions; it is closed with this follower.
            ends: looks up end offsets; it is not closed with the follower.
        """
        self._log, self._ends = log, ends
        self._topics = sorted({topic for topic, _ in log.positions})

    @property
    def positions(self) -> Offsets:
        """See `LogFollower`."""
        return self._log.positions

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
        """See `LogFollower`."""
        return self._log.take(most, most_bytes, wait_s)

    def limit(self, ends: Offsets | None) -> None:
        """See `LogFollower`."""
        self._log.limit(ends)

    def ends(self) -> Offsets:
        """Return the last stable offset of every partition of the topics, followed or not."""
        return with_retries(partial(self._ends.last, self._topics))

    def close(self) -> None:
        """Stop fetching."""
        self._log.close()
