"""The tables of a job that reads framed transactions, and reports records of topics that these have left.

Such a record may hold a card number, which its dead letter must not show; only its schema tells where. So the
record is returned once the topic of schemas has been read as far as it reached when the record was there.
"""

from collections.abc import Collection, Iterator

from streaming_job.group.loop import Tables
from streaming_job.log.records import Offsets, Records


class TablesAfterSchemas:
    """Tables of which the records of retired topics are held back until their schemas have been read."""

    def __init__(self, tables: Tables, schemas: str, retired: Collection[str]) -> None:
        """Begin with nothing held back; `schemas` is one of the tables."""
        self._tables, self._schemas, self._retired = tables, schemas, frozenset(retired)
        self._held: list[Records] = []

    @property
    def positions(self) -> Offsets:
        """See `loop.Tables`; records that are held back have not been read."""
        first: Offsets = {}
        for records in self._held:
            for partition, offset in zip(records.partitions.tolist(), records.offsets.tolist(), strict=True):
                first.setdefault((records.topic, partition), offset)
        return {**self._tables.positions, **first}

    def lag(self) -> dict[str, int]:
        """See `loop.Tables`."""
        return self._tables.lag()

    def poll(self, wait_s: float = 0.0) -> list[Records]:
        """See `loop.Tables`."""
        if self._held:
            return list(self.read_to_ends((self._schemas,)))
        return list(self._others(self._tables.poll(wait_s)))

    def look(self, topics: Collection[str]) -> None:
        """See `loop.Tables`."""
        self._tables.look(topics)

    def read_to_ends(self, topics: Collection[str]) -> Iterator[Records]:
        """See `loop.Tables`."""
        held = []
        if self._schemas in topics:
            held, self._held = self._held, []
        for records in self._tables.read_to_ends(topics):
            yield from self._others((records,))
        yield from held

    def _others(self, new: Collection[Records]) -> Iterator[Records]:
        for records in new:
            if records.topic in self._retired:
                self._held.append(records)
            else:
                yield records
