"""A growing log in memory, with followers for the loop of a key group.

It keeps the contracts of `log.follower` and `log.table_follower`: a bounded number of records from any
mixture of partitions, positions that move past transaction markers, limits. How many records a call returns
is drawn at random; the process may be killed at each call.
"""

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from random import Random

from harness.group_batches import as_records
from harness.job_world import PARTITIONER, World
from harness.log_world import TOPICS
from loadtests.oracle import Record
from streaming_job.decode.snapshots import ends_snapshot
from streaming_job.log.partitioner import Layout
from streaming_job.log.records import Offsets, PartitionId, Records

MARKED = 4
"""Number of records of a partition between two transaction markers; a marker takes an offset."""


class KilledError(Exception):
    """The process was killed."""


class Fate:
    """Draws how many records calls return; kills the process at the call that a test sets (`left`)."""

    def __init__(self, chance: int) -> None:
        """Start without a kill.

        Args:
            chance: seed of all draws.
        """
        self.random = Random(chance)
        self.left: int | None = None
        """Number of calls before the one that kills the process; None: no kill."""

    def call(self, *_: object) -> None:
        """Count a call; kill the process if no call was left."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise KilledError

    def up_to(self, most: int) -> int:
        """Draw a number from 0 to `most`."""
        return self.random.randint(0, most)


def as_written(world: World) -> list[Record]:
    """The world's log, with two partitions each of profiles and labels, and gaps for transaction markers."""
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
    """Partitions whose records are written one after another."""

    def __init__(self, records: Sequence[Record], fate: Fate, own: Sequence[PartitionId] = ()) -> None:
        """Write all records up to the end of the first snapshot of the profiles, for which the job waits.

        Args:
            records: in the order of writing (`as_written`).
            fate: draws how many records are written at a time.
            own: partitions that the job itself writes.
        """
        self._records, self._fate = records, fate
        self._written = 0
        self._by_place: dict[PartitionId, list[Record]] = {(r.topic, r.partition): [] for r in records}
        self._by_place |= {partition: [] for partition in own}
        self._original = self._layout = Layout(TOPICS.transactions, PARTITIONER, 0)
        self._held: list[Record] | None = None
        self.origins: dict[tuple[str, int, int], Record] = {}
        """Transactions by where they were written after a move; see `move`."""
        self.retired: list[tuple[str, int, int]] = []
        """Where transactions were written that came too late to a topic; see `write_late`."""
        ends = [n for n, r in enumerate(records, 1) if r.topic == TOPICS.profiles and ends_snapshot(r.value)]
        self._write(min(ends, default=0))

    def create(self, places: Iterable[PartitionId]) -> None:
        """Create partitions, unless they exist."""
        for place in places:
            self._by_place.setdefault(place, [])

    def lose_tail(self, place: PartitionId, end: int) -> None:
        """Lose the records from an offset on, as in an unclean election; nothing more is written there."""
        self._by_place[place] = [record for record in self._by_place[place] if record.offset < end]
        later = [r for r in self._records[self._written :] if (r.topic, r.partition) != place]
        self._records = [*self._records[: self._written], *later]

    def drop(self, place: PartitionId, offset: int) -> None:
        """Leave a gap instead of a record, as of a transaction marker."""
        self._by_place[place] = [record for record in self._by_place[place] if record.offset != offset]

    def grow(self, most: int) -> None:
        """Write the next records."""
        self._write(min(self._written + self._fate.up_to(most), len(self._records)))

    def _write(self, until: int) -> None:
        for record in self._records[self._written : until]:
            if self._held is not None and record.topic == TOPICS.transactions:
                self._held.append(record)
            else:
                self._append(record)
        self._written = until

    def _append(self, record: Record) -> None:
        moved = self._moved(record)
        self._by_place[moved.topic, moved.partition].append(moved)

    def stop_producers(self) -> None:
        """Hold back the transactions until they move."""
        self._held = []

    def move(self, original: Layout, layout: Layout) -> None:
        """Write all further transactions, and those held back, by another layout.

        Args:
            original: that of the records that were given.
            layout: the new one, of at least 2 partitions: a record in a wrong partition gets a wrong one.
        """
        self._original, self._layout = original, layout
        self.create((layout.topic, partition) for partition in range(layout.partitions))
        held, self._held = self._held, None
        for record in held or ():
            self._append(record)

    def _moved(self, record: Record) -> Record:
        before, after = self._original, self._layout
        if record.topic != before.topic or not before.partitions:
            return record
        partition = record.partition % after.partitions
        if (card := _card(record)) is not None:
            is_right = before.key_groups(1).partition_of(card) == record.partition
            partition = (after.key_groups(1).partition_of(card) + (not is_right)) % after.partitions
        place = after.topic, partition
        moved = record._replace(topic=place[0], partition=partition, offset=self.end(place))
        self.origins[*place, moved.offset] = record
        return moved

    def write_late(self, topics: Collection[str], most: int) -> None:
        """Write some earlier transactions again, to topics that the transactions have left, if any."""
        places = sorted(tp for tp in self._by_place if tp[0] in topics)
        written = [record for record in self._records[: self._written] if record.topic == TOPICS.transactions]
        if not places or not written:
            return
        for record in self._fate.random.choices(written, k=self._fate.up_to(most)):
            place = self._fate.random.choice(places)
            late = record._replace(topic=place[0], partition=place[1], offset=self.end(place))
            self._by_place[place].append(late)
            self.retired.append((*place, late.offset))

    def append(self, place: PartitionId, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Append records that the job writes: key and value of each."""
        for key, value in records:
            self._by_place[place].append(Record(*place, self.end(place), 0, key, value))

    @property
    def is_complete(self) -> bool:
        """Whether everything has been written."""
        return self._written == len(self._records)

    def end(self, place: PartitionId) -> int:
        """Offset after the last record, and after a marker that follows it."""
        count = len(self._by_place[place])
        return count + count // MARKED

    def ends(self, topics: Collection[str]) -> Offsets:
        """End offsets of all partitions of some topics."""
        return {partition: self.end(partition) for partition in self._by_place if partition[0] in topics}

    def between(self, starts: Offsets, ends: Offsets) -> list[Record]:
        """Records of the partitions in `starts`, each from its start to before its end."""
        return [
            record
            for partition, start in starts.items()
            for record in self._by_place[partition]
            if start <= record.offset < ends[partition]
        ]

    def read(self, positions: Offsets, most: int, limit: Offsets) -> list[Records]:
        """Read some of the next records, of any partitions; positions move past them and maybe a marker."""
        records: list[Record] = []
        for partition in self._fate.random.sample(sorted(positions), len(positions)):
            end = min(self.end(partition), limit.get(partition, self.end(partition)))
            here = self.between({partition: positions[partition]}, {partition: end})
            taken = here[: self._fate.up_to(most - len(records))]
            records += taken
            if taken:
                positions[partition] = taken[-1].offset + 1
            if len(taken) == len(here) and self._fate.up_to(2):
                positions[partition] = max(positions[partition], end)
        return list(as_records(records))


class MemoryTransactions:
    """See `loop.Transactions`."""

    def __init__(self, log: MemoryLog, fate: Fate, positions: Offsets) -> None:
        """Follow from some positions on."""
        self._log, self._fate, self._limit = log, fate, Offsets()
        self.positions = positions

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Records]:
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
        return {partition: self._log.end(partition) for partition in self.positions}


class MemoryTables:
    """See `loop.Tables`."""

    def __init__(self, log: MemoryLog, fate: Fate, positions: Offsets, topics: Sequence[str]) -> None:
        """Follow from some positions on."""
        self._log, self._fate = log, fate
        self.positions = positions
        self._first_ends = log.ends(topics)
        self._looked: Offsets = {}

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

    def look(self, topics: Collection[str]) -> None:
        """See `loop.Tables`."""
        self._looked = self._log.ends(topics)

    def read_to_ends(self, topics: Collection[str]) -> Iterator[Records]:
        """See `loop.Tables`."""
        looked, self._looked = self._looked, {}
        ends = looked or self._log.ends(topics)
        while any(self.positions[partition] < end for partition, end in ends.items()):
            yield from self.poll()


def _card(record: Record) -> str | None:
    """Return the card of a transaction, of a framed one by its key; None if it names none."""
    if record.value is not None and record.value.startswith(b"\0"):
        return (record.key or b"").decode()
    try:
        card = json.loads(record.value or b"")["card_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return card if isinstance(card, str) else None
