"""A log of which an archive has a part: what was lost or has expired there is no record of the log.

archive    ..|lost|#####|        expired   ......|#####|
topic                 |####                |###########|
log              |#########                |###########|
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from harness.archives import batch, partition_writer, write

from feature_store.archive import commit
from feature_store.archive.file_writer import FinishedFile
from feature_store.archive.manifest import Kind, Span
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from loadtests.audit import archived_log
from loadtests.audit.archived_log import ArchivedLog
from loadtests.oracle.records import Record
from streaming_job.archive.topics import ArchivedTopic

pytestmark = pytest.mark.unit
FAR = 1_700_000_000_000_000
"""A timestamp in microseconds."""


class Topics:
    """A topic with records at the offsets from one on to before 30."""

    def __init__(self, first: int) -> None:
        self._first = first

    def beginnings(self, topic: str) -> dict[int, int]:
        return {0: self._first}

    def read(self, topic: str, ends: Mapping[int, int] | None, starts: Mapping[int, int]) -> Iterator[Record]:
        for offset in range(starts.get(0, self._first), 30 if ends is None else ends[0]):
            assert offset >= self._first, "deleted"
            yield Record(topic, 0, offset, offset, b"k", b"v", ())


@pytest.fixture(autouse=True)
def looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [ArchivedTopic("t", "t", "id", is_compacted=False, compacted_before_ms=0)]
    monkeypatch.setattr(archived_log, "look_up", lambda settings, topics: found)


def log_of(place: Path, first: int) -> ArchivedLog:
    return ArchivedLog(Topics(first), type("S", (), {"topics": None})(), archived_log.Archive(str(place)))  # type: ignore[arg-type]


def offsets(log: ArchivedLog, *bounds: dict[int, int]) -> list[int]:
    return [record.offset for record in log.read("t", *bounds)]


def records(first: int, end: int) -> list[tuple[int, int, bytes, bytes]]:
    return [(offset, offset, b"k", b"v") for offset in range(first, end)]


def test_an_audit_begins_after_what_was_deleted_before_it_was_archived(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    write(tmp_path, {"t": {0: [batch(records(0, 5))]}})
    lost, writer = FinishedFile(Span(Kind.LOST, 5, 10), None), partition_writer(storage, "t", 0, 0)
    assert list(writer.add(batch(records(0, 5)))) == []
    after = partition_writer(storage, "t", 0, 10)
    rest = [*after.add(batch([*records(10, 19), (19, FAR, b"k", b"v")])), after.finish(Kind.TAIL)]
    for each in (writer.finish(Kind.FILE), lost, *rest):
        assert each is not None
        commit.commit(storage, "t", 0, each, lambda _: None)
    log = log_of(tmp_path, 15)
    assert log.beginnings("t") == {0: 10}
    assert offsets(log) == [*range(10, 30)]
    assert offsets(log, {0: 20}, {0: 12}) == [*range(12, 20)]
    assert [record.timestamp for record in log.read("t", {0: 20}, {0: 19})] == [FAR]


def test_what_has_expired_in_the_archive_is_read_from_a_topic_that_is_kept_for_longer(tmp_path: Path) -> None:
    rows = [(offset, offset // 10 * DAY_MS, b"k", b"v") for offset in range(20)]
    write(tmp_path, {"t": {0: [batch(rows)]}})
    assert len(commit.expire(Storage(str(tmp_path)), "t", 0, DAY_MS)) == 1
    log = log_of(tmp_path, 5)
    assert log.beginnings("t") == {0: 5}
    assert offsets(log) == [*range(5, 30)]
    assert offsets(log, {0: 18}, {0: 12}) == [*range(12, 18)]
