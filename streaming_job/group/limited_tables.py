"""The tables up to a limit: for a successor that must not overtake its predecessor, and for a drain."""

from collections.abc import Collection, Iterator

import numpy as np

from streaming_job.group.loop import Tables
from streaming_job.log.records import Offsets, Records


class LimitedTables:
    """Tables of which only records before a limit are returned; later ones are held back until it rises."""

    def __init__(self, tables: Tables, limit: Offsets) -> None:
        """Begin with a limit by partition; a partition without one returns nothing."""
        self._tables, self._limit = tables, limit
        self._held: list[Records] = []

    def raise_to(self, limit: Offsets) -> None:
        """Set a limit that is nowhere lower than the one before."""
        self._limit = limit

    @property
    def positions(self) -> Offsets:
        """See `loop.Tables`."""
        return {tp: min(offset, self._limit.get(tp, 0)) for tp, offset in self._tables.positions.items()}

    def lag(self) -> dict[str, int]:
        """See `loop.Tables`; records beyond the limit do not count."""
        return {}

    def poll(self, wait_s: float = 0.0) -> list[Records]:
        """See `loop.Tables`."""
        return list(self._released(self._tables.poll(wait_s)))

    def look(self, topics: Collection[str]) -> None:
        """See `loop.Tables`."""
        self._tables.look(topics)

    def read_to_ends(self, topics: Collection[str]) -> Iterator[Records]:
        """See `loop.Tables`."""
        yield from self._released(())
        for records in self._tables.read_to_ends(topics):
            yield from self._released((records,))

    def _released(self, new: Collection[Records]) -> Iterator[Records]:
        records, self._held = [*self._held, *new], []
        for each in records:
            limits = np.array(
                [self._limit.get((each.topic, partition), 0) for partition in each.partitions.tolist()],
                dtype=np.int64,
            )
            before = each.offsets < limits
            if not before.all():
                self._held.append(each.take(np.flatnonzero(~before)))
            if before.any():
                yield each.take(np.flatnonzero(before))
