"""The time since which topics are complete: older records may have been deleted.

Outcomes are derived from several topics. A shadow alert records that a challenger disagrees with the
champion, so a missing one is taken to mean that they agree. There are two topics with labels (labels,
chargebacks), and one may have a later label that contradicts the other's. So if one topic has lost the
records of a time that another topic still covers, counts are wrong, not only smaller.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from service.labels.errors import UnreadError
from streaming_job.log import follow, topic_reader
from streaming_job.log.clients import AdminClient, Consumer, describe

RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"


@dataclass(frozen=True)
class PartitionRange:
    """A partition, and where its records since a given time begin."""

    topic: str
    partition: int
    first: int
    """Offset of the oldest record that is left."""
    start: int
    """Offset of the first record since that time; `end` if there is none."""
    end: int
    """Offset after the last record."""

    @property
    def may_miss_records(self) -> bool:
        """Whether records since that time may be missing: some were deleted, and none before it is left."""
        return 0 < self.first == self.start


def ranges_since(reader: Consumer, topic: str, since: int) -> list[PartitionRange]:
    """Return the partitions of a topic, each with the offset of its first record from `since` on.

    Args:
        reader: a consumer that joined no group.
        since: Kafka timestamp, ms.
    """
    ranges = []
    for partition, (first, end) in topic_reader.bounds(reader, topic).items():
        wanted = [TopicPartition(topic, partition, since)]
        (found,) = reader.offsets_for_times(wanted, topic_reader.TIMEOUT_S)
        start = end if found.offset < 0 else max(first, found.offset)
        ranges.append(PartitionRange(topic, partition, first, start, end))
    return ranges


def complete_since(
    admin: AdminClient, reader: Consumer, ranges: Sequence[PartitionRange], since: int, now_ms: int
) -> int:
    """Return the time, ms, since which all partitions have every record; never before `since`.

    The topics' configuration is only queried if records may have been deleted.

    Args:
        reader: a consumer that joined no group; its assignment changes.
        ranges: partitions of all topics.
        since: time since which records are wanted, ms.

    Raises:
        KafkaException: no answer.
        UnreadError: a topic's configuration cannot be read.
    """
    doubtful = [range_ for range_ in ranges if range_.may_miss_records]
    limits = {topic: _retention(admin, topic) for topic in {range_.topic for range_ in doubtful}}
    bounds = [bound for range_ in doubtful for bound in _bounds(reader, range_, limits[range_.topic], now_ms)]
    return max(since, *bounds) if bounds else since


def _bounds(reader: Consumer, range_: PartitionRange, limits: tuple[int, int], now_ms: int) -> Iterator[int]:
    """Yield, for each cause of deletion, the time since which it has deleted nothing from a partition."""
    kept_ms, kept_bytes = limits
    if kept_ms >= 0:
        yield now_ms - kept_ms
    if kept_ms < 0 or kept_bytes >= 0:
        # deleted by size, or by hand: only the oldest record that is left shows how far
        start = TopicPartition(range_.topic, range_.partition, range_.first)
        oldest = follow.first_arrival(reader, start)
        yield now_ms if oldest is None else oldest


def _retention(admin: AdminClient, topic: str) -> tuple[int, int]:
    """Return the topic's limits of age, ms, and of size, bytes; -1: no limit."""
    try:
        entries = topic_reader.settings_of(admin, topic)
    except (KafkaException, TimeoutError) as fault:
        raise UnreadError(
            f"records of the trial may have been deleted from {topic}, and its retention cannot be read: "
            f"{describe(fault)}; allow DescribeConfigs on the topic"
        ) from fault
    kept_ms, kept_bytes = (int(entries[name].value) for name in (RETENTION_MS, RETENTION_BYTES))
    return kept_ms, kept_bytes
