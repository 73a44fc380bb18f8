"""How far the job is behind its inputs at one moment: pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartitionLag:
    """One input partition."""

    topic: str
    partition: int
    start: int
    """Oldest offset that the broker still holds."""
    end: int
    """Offset that the next record will get (high watermark)."""
    committed: int | None
    """Offset from which the job reads next; None before it committed any."""
    waiting_since_ms: int | None = None
    """Since when the oldest record not yet processed has been there (see `Waiting`); None without one."""
    held_from: int | None = None
    """Last stable offset: first offset of an open transaction, from which on consumers that read committed
    records get none; None where there is none."""

    @property
    def position(self) -> int:
        """Offset of the oldest record not yet processed, if there is one."""
        return max(self.start, self.committed or 0)

    @property
    def _readable_end(self) -> int:
        return self.end if self.held_from is None else min(self.held_from, self.end)

    @property
    def records(self) -> int:
        """Records that the job could have processed and has not."""
        return max(0, self._readable_end - self.position)

    @property
    def held(self) -> int:
        """Records that wait for a producer to end its transaction."""
        return max(0, self.end - max(self._readable_end, self.position))

    def seconds(self, now_s: float) -> float:
        """How long the oldest record not yet processed has been waiting, for whomever."""
        return 0.0 if self.waiting_since_ms is None else max(0.0, now_s - self.waiting_since_ms / 1e3)


@dataclass(frozen=True)
class Lag:
    """All input partitions at one moment."""

    taken_at: float
    """Seconds since 1970-01-01 UTC."""
    partitions: tuple[PartitionLag, ...]
    missing: tuple[str, ...] = ()
    """Input topics that do not exist."""
    feed_ms: Mapping[str, int] = field(default_factory=dict)
    """Timestamps of the newest signs of life of the profiles' feed, by signal: `change`, `heartbeat`."""
    instances: frozenset[str] = frozenset()
    """Processes of the job that committed its offsets of transactions last, by the offsets' metadata."""

    @property
    def records(self) -> int:
        """Records of all inputs that the job could have processed and has not."""
        return sum(partition.records for partition in self.partitions)

    @property
    def held(self) -> int:
        """Records of all inputs that wait for a producer to end its transaction."""
        return sum(partition.held for partition in self.partitions)

    def seconds(self, now_s: float) -> float:
        """How long the oldest record not yet processed has been waiting."""
        return max((partition.seconds(now_s) for partition in self.partitions), default=0.0)
