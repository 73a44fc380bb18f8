"""A growing log in memory, and what follows it as the loop of a key group wants it.

It keeps the contracts of `log.follower` and `log.table_follower`: bounded amounts in any mixture of
partitions, positions that move over marks of transactions, limits. How much each call hands out is drawn;
each call may be its process's last.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

from harness.group_batches import as_records
from harness.job_world import TOPICS, World
from loadtests.oracle import Record
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.log.records import Offsets, PartitionId, Records

MARKED = 4
"""After so many records of a partition lies the mark of a producer's transaction, which takes an offset."""


class KilledError(Exception):
    """The process was killed."""


class Fate:
    """Draws amounts, and decides which call is a process's last."""

    def __init__(self, chance: int) -> None:
        """Calm until told otherwise.

        Args:
            chance: everything that is drawn follows from it.
        """
        self.random = Random(chance)
        self.left: int | None = None
        """Calls until the process is killed."""

    def call(self, *_: object) -> None:
        """One call."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise KilledError

    def up_to(self, most: int) -> int:
        """An amount."""
        return self.random.randint(0, most)


def as_written(world: World) -> list[Record]:
    """The world's log with profiles in two partitions, and marks of transactions."""
    counts: Counter[PartitionId] = Counter()
    written = []
    for record in world.in_order():
        partition = record.partition
        if record.topic in (TOPICS.profiles, TOPICS.labels):
            partition = zlib.crc32(record.key or b"") % 2
        number = counts[record.topic, partition]
        counts[record.topic, partition] += 1
        written.append(record._replace(partition=partition, offset=number + number // MARKED))
    return written


class MemoryLog:
    """Partitions, of which a growing part has been written."""

    def __init__(self, records: Sequence[Record], fate: Fate, own: Sequence[PartitionId] = ()) -> None:
        """Only the first snapshot of the profiles has been written: the job waits for it.

        Args:
            records: in the order in which they are going to be (`as_written`).
            fate: tells how fast.
            own: partitions that the job itself writes.
        """
        self._records, self._fate = records, fate
        self._written = 0
        self._by_place: dict[PartitionId, list[Record]] = {(r.topic, r.partition): [] for r in records}
        self._by_place |= {place: [] for place in own}
        ends = [n for n, r in enumerate(records, 1) if r.topic == TOPICS.profiles and ends_snapshot(r.value)]
        self._write(min(ends, default=0))

    def grow(self, most: int) -> None:
        """Time passes."""
        self._write(min(self._written + self._fate.up_to(most), len(self._records)))

    def _write(self, until: int) -> None:
        for record in self._records[self._written : until]:
            self._by_place[record.topic, record.partition].append(record)
        self._written = until

    def append(self, place: PartitionId, values: Sequence[bytes]) -> None:
        """The job writes."""
        for value in values:
            self._by_place[place].append(Record(*place, self.end(place), 0, None, value))

    @property
    def is_complete(self) -> bool:
        """Whether everything has been written."""
        return self._written == len(self._records)

    def end(self, place: PartitionId) -> int:
        """The offset after the last record, and after the mark that follows it if one does."""
        count = len(self._by_place[place])
        return count + count // MARKED

    def ends(self, topics: Sequence[str]) -> Offsets:
        """Of all partitions of some topics."""
        return {place: self.end(place) for place in self._by_place if place[0] in topics}

    def between(self, starts: Offsets, ends: Offsets) -> list[Record]:
        """What has been written there."""
        return [
            record
            for place, start in starts.items()
            for record in self._by_place[place]
            if start <= record.offset < ends[place]
        ]

    def read(self, positions: Offsets, most: int, limit: Offsets) -> list[Records]:
        """Some of what comes next, in any partitions; positions move on, over marks if they are noticed."""
        found: list[Record] = []
        for place in self._fate.random.sample(sorted(positions), len(positions)):
            end = min(self.end(place), limit.get(place, self.end(place)))
            here = self.between({place: positions[place]}, {place: end})
            taken = here[: self._fate.up_to(most - len(found))]
            found += taken
            if taken:
                positions[place] = taken[-1].offset + 1
            if len(taken) == len(here) and self._fate.up_to(2):
                positions[place] = max(positions[place], end)
        return list(as_records(found))


class MemoryTransactions:
    """See `loop.Transactions`."""

    def __init__(self, log: MemoryLog, fate: Fate, positions: Offsets) -> None:
        """Follow from some positions on."""
        self._log, self._fate, self._limit = log, fate, Offsets()
        self.positions = positions

    def take(self, most: int, most_bytes: int, wait_s: float, linger_s: float) -> list[Records]:
        """See `loop.Transactions`."""
        self._fate.call()
        self._log.grow(6)
        return self._log.read(self.positions, most, self._limit)

    def limit(self, ends: Offsets | None) -> None:
        """See `loop.Transactions`."""
        self._fate.call()
        self._limit = dict(ends or {})

    def ends(self) -> Offsets:
        """See `loop.Transactions`."""
        self._fate.call()
        return {place: self._log.end(place) for place in self.positions}


class MemoryTables:
    """See `loop.Tables`."""

    def __init__(self, log: MemoryLog, fate: Fate, positions: Offsets, topics: Sequence[str]) -> None:
        """Follow from some positions on."""
        self._log, self._fate, self._topics = log, fate, topics
        self.positions = positions
        self._first_ends = log.ends(topics)

    def lag(self) -> dict[str, int]:
        """See `loop.Tables`."""
        return {
            topic: end - self.positions[topic, partition]
            for (topic, partition), end in self._first_ends.items()
            if end > self.positions[topic, partition]
        }

    def poll(self, wait_s: float = 0.0) -> list[Records]:
        """See `loop.Tables`."""
        self._fate.call()
        self._log.grow(2)
        return self._log.read(self.positions, 8, {})

    def read_to_ends(self) -> Iterator[Records]:
        """See `loop.Tables`."""
        ends = self._log.ends(self._topics)
        while any(self.positions[place] < end for place, end in ends.items()):
            yield from self.poll()
