"""The follower of a key group's own partitions of the transactions."""

from collections.abc import Collection, Mapping
from functools import partial

from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import Offsets


class OwnPartitions(LogFollower):
    """A follower of partitions that can also look up the end offsets of their topics."""

    def __init__(
        self,
        client: Mapping[str, str],
        positions: Offsets,
        ends: EndOffsets,
        by_broker: Collection[str] = (),
    ) -> None:
        """Begin to fetch.

        Args:
            client: librdkafka settings, including bootstrap.servers.
            positions: the partitions to follow, and the offset at which each begins.
            ends: looks up end offsets; it is not closed with the follower.
            by_broker: see `LogFollower`.

        Raises:
            LibraryError: librdkafka refuses the settings, a topic or a partition.
        """
        super().__init__(client, positions, by_broker)
        self._ends, self._topics = ends, sorted({topic for topic, _ in positions})

    def ends(self) -> Offsets:
        """Return the last stable offset of every partition of the topics, followed or not.

        Raises:
            LogError, LogUnavailableError: see `with_retries`.
        """
        return with_retries(partial(self._ends.last, self._topics))
