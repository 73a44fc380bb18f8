"""Followers of a log that begins in an archive: the same records as in the log alone, whatever the calls."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from harness import archives
from harness.job_world import load
from harness.log_world import TOPICS
from harness.memory_job import MemoryConnections, MemoryJob, Output, mortal
from harness.memory_log import Fate, MemoryLog, MemoryTransactions, as_written
from harness.random_world import random_world
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.archive import commit, file_writer, layout
from feature_store.archive.layout import ArchiveError, partition_path
from feature_store.archive.manifest import Kind, Span
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from loadtests.oracle import Record
from streaming_job.archive.followers import ArchivedFollower, LogArchive
from streaming_job.group.opening import Opening
from streaming_job.group.rules import Rules
from streaming_job.log.records import Offsets, PartitionId, Records

pytestmark = pytest.mark.unit

TOPIC, PARTITIONS, TRANSACTIONS = TOPICS.transactions, 3, 40
FIELDS = {name: field for field, name in TOPICS.model_dump().items()}
NO_BYTES, ALL_BYTES = 1, 1 << 30


class Kafka(MemoryTransactions):
    """What a broker has, in memory; see `PartitionFollower`."""

    def trouble(self) -> str:
        """See `LogFollower`."""
        return "trouble"

    def close(self) -> None:
        """See `LogFollower`."""


def written(records: Sequence[Record], fate: Fate) -> MemoryLog:
    log = MemoryLog(records, fate)
    while not log.is_complete:
        log.grow(len(records))
    return log


@contextmanager
def archived(records: Sequence[Record], ends: Offsets) -> Iterator[Path]:
    """An archive of the partitions in `ends`, up to these offsets, in small files and row groups."""
    own: dict[PartitionId, list[Record]] = defaultdict(list)
    for record in records:
        if record.offset < ends.get((record.topic, record.partition), 0):
            own[record.topic, record.partition].append(record)
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "RANGE", 8)
        patch.setattr(file_writer, "GROUP_ROWS", 3)
        commit.create(Storage(place), {FIELDS[TOPIC]: TOPIC})
        for (topic, partition), part in own.items():
            rows = archives.batch([(r.offset, r.timestamp, r.key, r.value) for r in part])
            archives.write(
                Path(place), {FIELDS[topic]: {partition: [rows]}}, position=ends[topic, partition],
                names={FIELDS[topic]: topic},
            )  # fmt: skip
        yield Path(place)


def of(place: Path, topic_id: str = "id") -> LogArchive:
    return LogArchive(Archive(str(place)), dict.fromkeys(FIELDS, topic_id))


def followed(archive: LogArchive, log: MemoryLog, fate: Fate, positions: Offsets) -> ArchivedFollower:
    parts = [part for tp, at in positions.items() if (part := archive.follower(tp, at)) is not None]
    return ArchivedFollower(parts, Kafka(log, fate, positions | {part.tp: part.end for part in parts}))


@examples(40, thorough=5_000)
@given(st.integers(0, 2**32))
def test_archive_and_log_are_read_as_one_log(chance: int) -> None:
    draw, fate = Random(chance), Fate(chance)
    records = as_written(random_world(draw.randrange(20), TRANSACTIONS, PARTITIONS))
    log = written(records, fate)
    ends = log.ends([TOPIC, TOPICS.profiles])
    starts = {tp: draw.randint(0, end) for tp, end in ends.items()}
    with archived(records, {tp: draw.randint(0, end) for tp, end in ends.items()}) as place:
        follower = followed(of(place), log, fate, dict(starts))
        limits: Offsets = {}
        read: dict[PartitionId, list[Record]] = defaultdict(list)
        for calm in range(2_000):
            if draw.random() < 0.2:
                at = follower.positions
                limits = {tp: draw.randint(at[tp], end) for tp, end in ends.items() if draw.random() < 0.5}
                follower.limit(limits or None)
            if calm > 100:
                limits = {}
                follower.limit(None)
            most = draw.randint(1, 12)
            batches = follower.take(most, draw.choice((NO_BYTES, 500, ALL_BYTES)), 0.0)
            assert sum(map(len, batches)) <= most
            assert len({batch.topic for batch in batches}) == len(batches)
            for batch in batches:
                for record in records_in(batch):
                    read[record.topic, record.partition].append(record)
            for tp, position in follower.positions.items():
                assert not read[tp] or position > read[tp][-1].offset
                assert position <= limits.get(tp, ends[tp])
            if follower.positions == ends:
                break
        assert follower.positions == ends
        for tp, start in starts.items():
            assert read[tp] == log.between({tp: start}, ends)
        assert follower.trouble() == "trouble"


def records_in(batch: Records) -> Iterator[Record]:
    assert (batch.partitions[1:] >= batch.partitions[:-1]).all()
    columns = (batch.partitions, batch.offsets, batch.arrivals)
    rows = zip(*(column.tolist() for column in columns), batch.keys, batch.values, strict=True)
    for partition, offset, arrival, key, value in rows:
        yield Record(batch.topic, partition, offset, arrival, key.as_py(), value.as_py())


class ArchivedTransactions(ArchivedFollower):
    """See `loop.Transactions`."""

    def ends(self) -> Offsets:
        """See `loop.Transactions`."""
        return dict(self.positions)


class ArchivedConnections(MemoryConnections):
    """Connections to a log whose transactions begin in an archive."""

    def __init__(self, log: MemoryLog, output: Output, fate: Fate, opening: Opening, archive: LogArchive):
        super().__init__(log, output, fate, opening)
        self._archive = archive

    def transactions(self, positions: Offsets) -> ArchivedTransactions:  # type: ignore[override]
        """See `opening.Connections`."""
        parts = [part for tp, at in positions.items() if (part := self._archive.follower(tp, at)) is not None]
        rest = positions | {part.tp: part.end for part in parts}
        return ArchivedTransactions(parts, Kafka(self._log, self._fate, rest))


class ArchivedJob(MemoryJob):
    """A job whose log begins in an archive."""

    def __init__(self, rules: Rules, log: MemoryLog, fate: Fate, archive: LogArchive | None) -> None:
        super().__init__(0, rules, log, fate)
        self._archive = archive

    def _connections(self, opening: Opening) -> MemoryConnections:
        if self._archive is None:
            return super()._connections(opening)
        return ArchivedConnections(self.log, self.output, self._fate, opening, self._archive)

    def decided(self) -> Output:
        """Decide the whole log, in epochs of many new processes; return the output."""
        with mortal(self._fate):
            for _ in range(200):
                self.epoch(1 + self._fate.up_to(12))
                if self.is_done:
                    return self.output
                self.lose_copy()
        raise AssertionError(f"not decided beyond {self.positions}")


@examples(3, thorough=2_000)
@given(st.integers(0, 2**32))
def test_a_job_decides_the_same_whether_its_log_begins_in_an_archive_or_not(chance: int) -> None:
    draw = Random(chance)
    world = random_world(draw.randrange(20), TRANSACTIONS, 2)
    rules, records = world.rules(1, load), as_written(world)
    outputs = []
    for has_archive in (False, True):
        fate = Fate(draw.randrange(2**32))
        log = written(records, fate)
        ends = {tp: draw.randint(0, end) for tp, end in log.ends([TOPIC]).items()} if has_archive else {}
        with archived(records, ends) as place:
            outputs.append(ArchivedJob(rules, log, fate, of(place) if has_archive else None).decided())
    assert outputs[0].records == outputs[1].records
    assert outputs[0].records


def some(end: int) -> list[Record]:
    return [Record(TOPIC, 0, offset, 1_000 * offset, b"k", b"v") for offset in range(end)]


def test_the_log_begins_in_the_archive_only_if_that_reaches_the_topic() -> None:
    tp = TOPIC, 0
    with archived(some(20), {tp: 20}) as place:
        archive = of(place)
        assert archive.first({tp: 20, (TOPIC, 1): 7}) == {tp: 0, (TOPIC, 1): 7}
        assert not [*archive.gaps({tp: 20, (TOPIC, 1): 7})]
        assert archive.first({tp: 21}) == {tp: 21}
        (gap,) = archive.gaps({tp: 21})
        assert gap == f"offsets 20 to 21 of {TOPIC}-0 are in neither archive nor topic"
        assert archive.follower(tp, 20) is None


def test_a_log_that_reaches_further_back_than_its_archive_is_read_alone() -> None:
    tp = TOPIC, 0
    with archived(some(20)[5:], {tp: 20}) as place:
        archive = of(place)
        assert archive.first({tp: 0}) == {tp: 0}
        assert archive.follower(tp, 4) is None
        assert archive.follower(tp, 5) is not None


def test_the_log_begins_after_what_was_lost_before_it_was_archived() -> None:
    tp = TOPIC, 0
    with archived(some(8), {tp: 8}) as place:
        lost = file_writer.FinishedFile(Span(Kind.LOST, 8, 11), None)
        commit.commit(Storage(str(place)), TOPIC, 0, lost, lambda _: None)
        archive = of(place)
        assert archive.first({tp: 11}) == {tp: 11}
        assert archive.first({tp: 5}) == {tp: 5}


def test_an_archive_of_another_topic_or_without_a_file_is_refused() -> None:
    tp = TOPIC, 0
    with archived(some(20), {tp: 20}) as place:
        again = of(place, "another id")
        for ask in (again.first, lambda first: [*again.gaps(first)]):
            with pytest.raises(ArchiveError, match="deleted and created again"):
                ask({tp: 20})
        spans = Archive(str(place)).manifest(FIELDS[TOPIC], 0).files()
        names = [f"{partition_path(*tp)}/{span.name}" for span in spans]
        (place / names[0]).unlink()
        (place / names[1]).write_bytes(b"")
        assert [*of(place).gaps({tp: 20})] == [
            f"{names[0]} is missing", f"{names[1]} is not the file of the manifest",
        ]  # fmt: skip
