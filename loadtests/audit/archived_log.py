"""A log that begins in an archive: what retention has deleted from the topics is read from its files."""

from collections.abc import Iterator, Mapping

from feature_store.archive.reader import Archive
from loadtests.audit.topic_log import Log, TopicLog, TopicReadError
from loadtests.oracle.records import Record
from streaming_job.archive.topics import look_up
from streaming_job.log.records import PartitionId
from streaming_job.settings import JobSettings

COLUMNS = ["offset", "timestamp", "key", "value", "headers"]


def open_log(settings: JobSettings, place: str | None) -> Log:
    """Return the topics of a broker, as far back as an archive has them.

    Args:
        place: the archive; None: only the topics.

    Raises:
        TopicReadError: the archive is of other topics.
    """
    topics = TopicLog(settings.bootstrap_servers, settings.kafka)
    return topics if place is None else ArchivedLog(topics, settings, Archive(place))


class ArchivedLog:
    """The records of an archive, then those that the topics have after them."""

    def __init__(self, topics: TopicLog, settings: JobSettings, archive: Archive) -> None:
        self._topics, self._archive = topics, archive
        self._fields = {name: field for field, name in archive.topics.items()}
        for topic in look_up(settings, settings.topics):
            firsts = topics.beginnings(topic.name)
            for partition in self._partitions(topic.name):
                manifest = archive.manifest(topic.field, partition)
                if manifest.topic_id != topic.topic_id:
                    raise TopicReadError(
                        f"topic {topic.name} was deleted and created again since the archive began; audit "
                        "without --archive"
                    )
                if firsts[partition] > manifest.end:
                    raise TopicReadError(
                        f"offsets {manifest.end} to {firsts[partition]} of {topic.name}-{partition} are "
                        "neither in the archive nor in the topic; audit without --archive"
                    )

    def committed(self, group: str, topics: tuple[str, ...]) -> dict[PartitionId, int]:
        """Return what `TopicLog.committed` does."""
        return self._topics.committed(group, topics)

    def ends(self, topic: str) -> dict[int, int]:
        """Return what `TopicLog.ends` does."""
        return self._topics.ends(topic)

    def beginnings(self, topic: str) -> dict[int, int]:
        """Return the first offset of each partition that the archive or the topic has."""
        firsts = self._topics.beginnings(topic)
        for partition in self._partitions(topic):
            # what is before it was lost, or has expired
            whole_from = self._archive.manifest(self._fields[topic], partition).whole_from
            firsts[partition] = min(firsts[partition], whole_from)
        return firsts

    def read(
        self, topic: str, ends: Mapping[int, int] | None = None, starts: Mapping[int, int] | None = None
    ) -> Iterator[Record]:
        """Yield committed records as `TopicLog.read` does, those of the archive first."""
        rest, firsts = dict(starts or {}), self.beginnings(topic)
        for partition in self._partitions(topic):
            manifest = self._archive.manifest(self._fields[topic], partition)
            first = rest.get(partition, firsts[partition])
            end = manifest.end if ends is None else min(ends.get(partition, 0), manifest.end)
            # a topic may be kept for longer than the archive's files
            if manifest.whole_from <= first < end:
                yield from self._archived(topic, partition, first, end)
                rest[partition] = end
        yield from self._topics.read(topic, ends, rest)

    def _archived(self, topic: str, partition: int, first: int, end: int) -> Iterator[Record]:
        field = self._fields[topic]
        for batch in self._archive.read(field, partition, first, end, columns=COLUMNS):
            # not as a datetime, which ends in 9999
            arrivals = batch["timestamp"].cast("int64")
            columns = [arrivals, *(batch[name] for name in ("offset", "key", "value", "headers"))]
            for arrival, offset, key, value, named in zip(*(c.to_pylist() for c in columns), strict=True):
                headers = tuple((header["key"], header["value"]) for header in named)
                yield Record(topic, partition, offset, arrival, key, value, headers)

    def _partitions(self, topic: str) -> list[int]:
        return self._archive.partitions(self._fields[topic]) if topic in self._fields else []
