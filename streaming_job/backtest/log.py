"""What a backtest reads: the records of archived topics, and which part of the log the archive has."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from feature_store.errors import FraudError
from streaming_job.log.records import Records


class BacktestError(FraudError):
    """A backtest cannot be made: the archive, a model or a policy is missing, or the job had other settings.

    The message says what to archive or which option to give; nothing was written.
    """


@dataclass(frozen=True)
class Extent:
    """The part of a partition that is archived."""

    first: int
    """Offset of the first record that the archive has, or could have had: 0 at the beginning of the log."""
    least_ms: int
    """Earliest arrival."""
    most_ms: int
    """Latest arrival."""


class ArchivedLog(Protocol):
    """Archived topics; workers of other processes open them again, so it can be pickled."""

    def extents(self, topic: str) -> dict[int, Extent]:
        """Return what is archived of each partition that has records; empty if the topic is not archived."""

    def partitions(self, topic: str) -> Sequence[int]:
        """Return the archived partitions, with records or without."""

    def compacted_before(self, topic: str) -> int | None:
        """Return the arrival before which compaction may have been faster than the archiver, ms."""

    def arrival(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the earliest arrival among the next records at or after an offset, ms; None without one."""

    def has_lost(self, topic: str, since_ms: int) -> bool:
        """Return whether records may have been deleted unarchived that arrived at a time or later."""

    def records(
        self,
        topic: str,
        partition: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        *,
        keys: bool = True,
    ) -> Iterator[Records]:
        """Yield a partition's records in the order of offsets.

        Args:
            since_ms: records that arrived before may be left out; None: none of them is.
            until_ms: records after the last one that arrived before may be left out; None: none of them is.
            keys: whether the keys are needed; without, they may be null.
        """
