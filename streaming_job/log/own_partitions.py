"""The transactions of a key group: its own partitions followed, and where they end."""

from collections.abc import Mapping

from streaming_job.log.end_offsets import EndOffsets, answered
from streaming_job.log.follower import LogFollower
from streaming_job.log.records import Offsets


class OwnPartitions(LogFollower):
    """Follows partitions of one topic, and can tell where they end."""

    def __init__(self, client: Mapping[str, str], positions: Offsets) -> None:
        """Begin to fetch.

        Args:
            client: librdkafka's names, bootstrap.servers among them.
            positions: the partitions to follow, and the offset at which each begins.

        Raises:
            LibraryError: librdkafka does not take the settings.
        """
        super().__init__(client, positions)
        self._settings, self._topics = client, sorted({topic for topic, _ in positions})
        self._ends: EndOffsets | None = None
        """A client of its own, made when it is first asked for."""

    def ends(self) -> Offsets:
        """By partition: where it ends now, open transactions left out.

        Raises:
            LogError: the brokers do not answer for too long.
        """
        if self._ends is None:
            self._ends = EndOffsets(self._settings, self._topics)
        return answered(self._ends.last)

    def close(self) -> None:
        """Stop fetching."""
        super().close()
        if self._ends is not None:
            self._ends.close()
