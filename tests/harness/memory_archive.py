"""An archive in memory: the log of a world, and what a job has written about it."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from harness.group_batches import as_records
from harness.job_world import World
from harness.log_world import TOPICS
from loadtests.oracle import Record
from streaming_job.backtest.log import Extent
from streaming_job.log.records import Records
from streaming_job.progress.outcome import Outcome


class MemoryArchive:
    """See `backtest.log.ArchiveLog`; batches have random sizes."""

    def __init__(self, records: Iterable[Record], chance: Random, partitions: int = 1) -> None:
        """Archive records.

        Args:
            records: of each partition in the order of offsets.
            chance: draws the sizes of batches.
            partitions: of the transactions.
        """
        self._chance = chance
        self.profiles_before: int | None = None
        """See `Losses`."""
        self._logs: dict[str, dict[int, list[Record]]] = {
            topic: {0: []} for topic in TOPICS.model_dump().values()
        }
        self._logs[TOPICS.transactions] = {partition: [] for partition in range(partitions)}
        for record in records:
            self._logs.setdefault(record.topic, {}).setdefault(record.partition, []).append(record)

    def partitions(self, topic: str) -> Sequence[int]:
        """See `ArchiveLog`."""
        return sorted(self._logs.get(topic, ()))

    def extents(self, topic: str) -> dict[int, Extent]:
        """See `ArchiveLog`."""
        return {
            partition: Extent(records[0].offset, min(times), max(times))
            for partition, records in self._logs.get(topic, {}).items()
            if (times := [record.timestamp for record in records])
        }

    def arrival(self, topic: str, partition: int, offset: int) -> int | None:
        """See `ArchiveLog`."""
        left = [record.timestamp for record in self._logs[topic][partition] if record.offset >= offset]
        return min(left, default=None)

    def compacted_before(self, topic: str) -> int | None:
        """See `ArchiveLog`."""
        return self.profiles_before if topic == TOPICS.profiles else None

    def has_lost(self, topic: str, since_ms: int) -> bool:
        """See `ArchiveLog`; nothing is lost."""
        return False

    def records(
        self,
        topic: str,
        partition: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        *,
        keys: bool = True,
    ) -> Iterator[Records]:
        """See `ArchiveLog`; leaves out what may be left out."""
        left = self._logs[topic][partition]
        if since_ms is not None:
            left = [record for record in left if record.timestamp >= since_ms]
        if until_ms is not None:
            inside = [n for n, record in enumerate(left, 1) if record.timestamp < until_ms]
            left = left[: max(inside, default=0)]
        if not keys:
            left = [record._replace(key=None) for record in left]
        while left:
            size = self._chance.randint(1, len(left))
            yield from as_records(left[:size])
            left = left[size:]


def archived(world: World, outcomes: Iterable[Outcome]) -> list[Record]:
    """A world's log, with the alerts of a job, which arrive with their transactions."""
    arrivals = {(record.partition, record.offset): record.timestamp for record in world.transactions}
    records = [*world.in_order()]
    for outcome in outcomes:
        for field in ("fraud_alerts", "suppressed_alerts"):
            topic = getattr(TOPICS, field)
            for number, alert in enumerate(outcome.records[field]):
                place = alert.partition, alert.offset
                records.append(Record(topic, 0, number, arrivals[place], alert.record_key, alert.value))
    return records
