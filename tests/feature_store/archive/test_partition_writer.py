"""The files of an archive: cut by the records alone, the same bytes however the records are read.

offsets   0 1 2 . 4 | 8 9 . . . . | 16 ...        a file ends at a multiple of RANGE (here 8),
days      1 1 1   2 | 2 1         |               before a record of a later day than its first one's,
files     [0, 4) [4, 8) [8, 16)                   and after the record that fills it
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.archives import Row, batch, partition_writer, write
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.archive import file_writer, layout
from feature_store.archive import partition_writer as cutting
from feature_store.archive.file_writer import FinishedFile
from feature_store.archive.layout import day_of
from feature_store.archive.manifest import Kind
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS

pytestmark = pytest.mark.unit
RANGE, FULL, GROUP_ROWS, GROUP_BYTES = 8, 40, 3, 20


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "RANGE", RANGE)
    monkeypatch.setattr(cutting, "MOST_BYTES", FULL)
    monkeypatch.setattr(file_writer, "GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(file_writer, "GROUP_BYTES", GROUP_BYTES)
    monkeypatch.setattr(file_writer, "MOST_PENDING", 2)


def naive_files(rows: Sequence[Row], first: int, position: int) -> list[tuple[int, int, list[Row]]]:
    """(first, end, records) of each whole file, by one record after the other."""
    files, current, day, size = [], [], None, 0
    for row in [*rows, None]:
        offset = position if row is None else row[0]
        while offset >= (first // RANGE + 1) * RANGE:
            end = (first // RANGE + 1) * RANGE
            files.append((first, end, current))
            first, current, size = end, [], 0
        if row is None:
            return files
        if current and row[1] // DAY_MS > day:
            files.append((first, offset, current))
            first, current, size = offset, [], 0
        if not current:
            day = row[1] // DAY_MS
        current.append(row)
        size += len(row[2] or b"") + len(row[3] or b"")
        if size >= FULL:
            files.append((first, offset + 1, current))
            first, current, size = offset + 1, [], 0
    raise AssertionError


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Row], int, int]:
    """Records, the log's first offset, and its end."""
    first = draw(st.integers(0, 20))
    steps = draw(st.lists(st.integers(1, 12) | st.just(1), max_size=30))
    contents = st.none() | st.binary(max_size=12)
    rows, offset = [], first - 1
    for step in steps:
        offset += step
        arrival = draw(st.integers(20_000, 20_002)) * DAY_MS + draw(st.integers(0, DAY_MS - 1))
        rows.append((offset, arrival, draw(contents), draw(contents)))
    return rows, first, offset + 1 + draw(st.integers(0, 10))


def written(storage: Storage, finished: Iterator[FinishedFile]) -> Iterator[tuple[Any, bytes]]:
    for each in finished:
        yield each.span, b"" if each.file is None else each.file.path.read_bytes()
        if each.file is not None:
            each.file.discard()


@given(log=logs(), data=st.data())
@examples(30, thorough=3_000)
def test_the_files_follow_from_the_records_alone(
    log: tuple[list[Row], int, int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows, first, position = log
    storage = Storage(str(tmp_path_factory.mktemp("archive")))
    with storage.locked("t/partition=0"):
        pass
    results = []
    for is_whole in (True, False):
        writer = partition_writer(storage, "t", 0, first)
        at, files = 0, []
        while at < len(rows):
            count = len(rows) if is_whole else data.draw(st.integers(1, 5))
            files += written(storage, writer.add(batch(rows[at : at + count])))
            at += count
        files += written(storage, writer.passed(position))
        assert writer.position == max(position, first)
        writer.discard()
        results.append(files)
    assert results[0] == results[1]
    expected = naive_files(rows, first, position)
    assert [(span.first, span.end, span.rows) for span, _ in results[0]] == [
        (begin, end, len(records)) for begin, end, records in expected
    ]
    for (span, content), (_, _, records) in zip(results[0], expected, strict=True):
        assert span.bytes == len(content)
        assert (span.kind is Kind.EMPTY) == (not records)
        if records:
            assert span.day == day_of(records[0][1])
            arrivals = [row[1] for row in records]
            assert (span.least_ms, span.most_ms) == (min(arrivals), max(arrivals))


@given(log=logs(), data=st.data())
@examples(20, thorough=3_000)
def test_records_are_read_back_by_offsets_and_by_arrivals(
    log: tuple[list[Row], int, int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows, _, _ = log
    if not rows:
        return
    place = tmp_path_factory.mktemp("archive")
    write(place, {"t": {0: [batch(rows, [("h", b"x"), ("n", None)])]}})
    archive = Archive(str(place))
    manifest = archive.manifest("t", 0)
    assert (manifest.begin, manifest.end, manifest.rows) == (rows[0][0], rows[-1][0] + 1, len(rows))
    low = data.draw(st.integers(manifest.begin, manifest.end))
    high = data.draw(st.integers(low, manifest.end))
    assert _rows(archive.read("t", 0, low, high)) == [row for row in rows if low <= row[0] < high]
    since = data.draw(st.sampled_from(rows))[1]
    until = since + data.draw(st.sampled_from([1, DAY_MS, 2 * DAY_MS]))
    arrived = archive.read("t", 0, arrived=layout.Arrivals(since, until))
    assert _rows(arrived) == [row for row in rows if since <= row[1] < until]
    for each in archive.read("t", 0, columns=["headers", "offset"]):
        assert each.schema.names == ["headers", "offset"]
        assert set(map(str, each["headers"].to_pylist())) == {
            "[{'key': 'h', 'value': b'x'}, {'key': 'n', 'value': None}]"
        }


def _rows(batches: Iterator[Any]) -> list[Row]:
    return [
        (row["offset"], int(row["timestamp"].timestamp() * 1000 + 0.5), row["key"], row["value"])
        for each in batches
        for row in each.to_pylist()
    ]


def test_directory_readers_see_the_whole_files_and_nothing_else(tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow.dataset as ds

    rows = [(offset, 20_000 * DAY_MS + offset, b"k", b"v") for offset in range(20)]
    write(tmp_path, {"t": {0: [batch(rows)], 1: [batch(rows[:9])]}})
    table = ds.dataset(tmp_path / "t", partitioning="hive").to_table()
    assert sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)) == [
        *((0, offset) for offset in range(16)),
        *((1, offset) for offset in range(8)),
    ]
    assert len(pd.read_parquet(tmp_path / "t" / "partition=1")) == 8
    assert len(list(Archive(str(tmp_path)).read("t", 0))) > 0


@pytest.mark.parametrize(
    ("arrival", "day"),
    [(20_000 * DAY_MS - 1, "2024-10-03"), (20_000 * DAY_MS, "2024-10-04"), (-1, "1969-12-31"),
     (1_700_000_000_000_000, "9999-12-31"), (2**63 - 1, "9999-12-31"), (-(2**63), "0001-01-01")],
)  # fmt: skip
def test_any_timestamp_has_a_day(tmp_path: Path, arrival: int, day: str) -> None:
    assert day_of(arrival) == day
    write(tmp_path, {"t": {0: [batch([(0, arrival, b"k", b"v")])]}})
    (read,) = Archive(str(tmp_path)).read("t", 0)
    assert read["timestamp"].cast("int64").to_pylist() == [arrival]
    (span,) = Archive(str(tmp_path)).manifest("t", 0).spans
    assert span.day == day
