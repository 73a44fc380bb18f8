"""Lag of the job behind its inputs at one moment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartitionLag:
    """Lag in one input partition."""

    topic: str
    partition: int
    start: int
    """Oldest offset that the broker still holds."""
    end: int
    """Offset that the next record will get (high watermark)."""
    committed: int | None
    """Offset from which the job reads next; None before its first commit."""
    waiting_since_ms: int | None = None
    """Arrival of the oldest unprocessed record (see `service.health.waiting`); None without such a record, or
    if the broker did not send it in time."""
    held_from: int | None = None
    """Last stable offset, if a producer's transaction is open: read_committed consumers get no records from
    this offset on. None otherwise."""

    @property
    def position(self) -> int:
        """Offset of the oldest unprocessed record, if there is one."""
        return max(self.start, self.committed or 0)

    @property
    def _readable_end(self) -> int:
        return self.end if self.held_from is None else min(self.held_from, self.end)

    @property
    def records(self) -> int:
        """Number of records that the job could have processed and has not."""
        return max(0, self._readable_end - self.position)

    @property
    def held(self) -> int:
        """Number of records that wait for a producer to end its transaction."""
        return max(0, self.end - max(self._readable_end, self.position))

    @property
    def lost(self) -> int:
        """Number of offsets that the job has read and the log no longer has: it ends before the position."""
        return max(0, (self.committed or 0) - self.end)

    def seconds(self, now_s: float) -> float:
        """Return how long the oldest unprocessed record has been waiting, for the job or for a producer."""
        return 0.0 if self.waiting_since_ms is None else max(0.0, now_s - self.waiting_since_ms / 1e3)


@dataclass(frozen=True)
class Lag:
    """Lag of all input partitions at one moment."""

    taken_at: float
    """Seconds since 1970-01-01 UTC."""
    partitions: tuple[PartitionLag, ...]
    missing: tuple[str, ...] = ()
    """Input topics that do not exist."""
    feed_ms: Mapping[str, int] = field(default_factory=dict)
    """Signal of the profile feed (`change`, `heartbeat`) -> timestamp of its newest record, ms."""
    instances: frozenset[str] = frozenset()
    """Processes of the job that committed the newest offsets of the transactions topic: the offsets' metadata
    names them."""

    @property
    def records(self) -> int:
        """Number of records in all inputs that the job could have processed and has not."""
        return sum(partition.records for partition in self.partitions)

    @property
    def held(self) -> int:
        """Number of records in all inputs that wait for a producer to end its transaction."""
        return sum(partition.held for partition in self.partitions)

    @property
    def lost(self) -> int:
        """Number of offsets in all inputs that the job has read and the logs no longer have."""
        return sum(partition.lost for partition in self.partitions)

    def seconds(self, now_s: float) -> float:
        """Return how long the oldest unprocessed record has been waiting."""
        return max((partition.seconds(now_s) for partition in self.partitions), default=0.0)
