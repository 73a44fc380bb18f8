"""The follower of a key group's own partitions of the transactions."""

from collections.abc import Collection, Mapping

from streaming_job.log.end_offsets import EndOffsets, with_retries
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import Offsets


class OwnPartitions(LogFollower):
    """A follower of partitions that can also look up the end offsets of their topics."""

    def __init__(
        self, client: Mapping[str, str], positions: Offsets, by_broker: Collection[str] = ()
    ) -> None:
        """Begin to fetch.

        Args:
            client: librdkafka settings, including bootstrap.servers.
            positions: the partitions to follow, and the offset at which each begins.
            by_broker: see `LogFollower`.

        Raises:
            LibraryError: librdkafka refuses the settings, a topic or a partition.
        """
        super().__init__(client, positions, by_broker)
        self._settings, self._topics = client, sorted({topic for topic, _ in positions})
        self._ends: EndOffsets | None = None
        """A separate client, created when it is first needed."""

    def ends(self) -> Offsets:
        """Return the last stable offset of every partition of the topics, followed or not.

        Raises:
            LogError: for PATIENCE_S the brokers did not answer, or answered with an error.
        """
        if self._ends is None:
            self._ends = EndOffsets(self._settings, self._topics)
        return with_retries(self._ends.last)

    def close(self) -> None:
        """Stop fetching."""
        super().close()
        if self._ends is not None:
            self._ends.close()
