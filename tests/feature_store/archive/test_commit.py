"""Changes of an archive: killed at any step, made twice, made by two writers at once, they change nothing.

written --> published --> listed --> the old tail is deleted
  a SIGKILL after any of them; then the whole again: the same files and manifests as without
"""

import multiprocessing
import os
import signal
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import object_store
from harness.archives import batch, partition_writer, write
from harness.tools import needs
from pyarrow import fs
from pyarrow.dataset import dataset
from pyarrow.parquet import ParquetFile
from thoroughness import only_thorough

from feature_store.archive import commit, file_writer, layout, storage
from feature_store.archive.commit import CommitPoint
from feature_store.archive.layout import ArchiveError, day_of
from feature_store.archive.manifest import Kind, Manifest
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS

pytestmark = pytest.mark.unit
DAY = 20_000
FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "RANGE", 8)
    monkeypatch.setattr(file_writer, "GROUP_ROWS", 3)


def records(first: int, end: int, day: int = DAY) -> object:
    return batch([(offset, day * DAY_MS + offset, b"k%d" % offset, b"v") for offset in range(first, end)])


def archived(place: Path) -> dict[str, bytes]:
    """Content of all files by name, but for locks and what a dead writer has left."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name != "_lock" and not path.name.startswith("_new-")
    }


def archive_in_two_steps(place: Path | str, kill_at: tuple[CommitPoint, int] | None = None) -> None:
    """Archive offsets 0 to 5 as a tail, then go on from the tail to 18: a whole file, another, a tail."""
    target, reached = Storage(str(place)), dict.fromkeys(CommitPoint, 0)

    def reach(step: CommitPoint) -> None:
        reached[step] += 1
        if kill_at == (step, reached[step]):
            os.kill(os.getpid(), signal.SIGKILL)

    commit.create(target, {"t": "t"})
    for end in (5, 18):
        manifest = commit.begin(target, Manifest("t", 0, "id", False))
        writer = partition_writer(target, "t", 0, manifest.closed)
        finished = []
        if manifest.tail is not None:
            for read in Archive(str(place)).read("t", 0, manifest.closed):
                finished += writer.add(read.select(layout.RECORD.names))
        if writer.position < end:
            finished += writer.add(records(writer.position, end))
        if tail := writer.finish(Kind.TAIL):
            finished.append(tail)
        for each in finished:
            commit.commit(target, "t", 0, each, reach)


def run(place: Path, kill_at: tuple[CommitPoint, int] | None = None) -> int | None:
    process = FORK.Process(target=archive_in_two_steps, args=(place, kill_at))
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, bytes]:
    assert run(tmp_path / "undisturbed") == 0
    files = archived(tmp_path / "undisturbed")
    assert len(files) == 5, "_archive.json, _manifest.json, two files, a tail"
    return files


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("step", list(CommitPoint))
def test_a_killed_writer_changes_nothing(
    step: CommitPoint, number: int, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    place = tmp_path / "killed"
    assert run(place, (step, number)) == -signal.SIGKILL
    listed = Archive(str(place)).manifest("t", 0)
    offsets = [each for read in Archive(str(place)).read("t", 0) for each in read["offset"].to_pylist()]
    assert offsets == list(range(listed.end)), "what the manifest lists can be read at any time"
    assert run(place) == 0
    assert archived(place) == undisturbed
    assert not list(place.rglob("_new-*"))


def test_two_writers_at_once_write_the_same_archive(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    place = tmp_path / "both"
    processes = [FORK.Process(target=archive_in_two_steps, args=(place,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert archived(place) == undisturbed


def test_an_object_store_gets_the_same_files(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that is not pyarrow's local one; unlike an object store, it needs its directories."""
    place = tmp_path / "objects"
    for name in undisturbed:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
    store = fs.SubTreeFileSystem(str(place), fs.LocalFileSystem())
    monkeypatch.setattr(storage.fs, "FileSystem", SimpleNamespace(from_uri=lambda _: (store, "")))
    archive_in_two_steps(Path("s3://bucket"))
    assert archived(place) == undisturbed
    offsets = [each for read in Archive("s3://bucket").read("t", 0) for each in read["offset"].to_pylist()]
    assert offsets == list(range(18))


def test_a_killed_writer_to_an_object_store_leaves_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, bucket = tmp_path / "tmp", tmp_path / "bucket"
    for directory in (temporary, bucket / "t"):
        directory.mkdir(parents=True)
    store = fs.SubTreeFileSystem(str(bucket), fs.LocalFileSystem())
    monkeypatch.setattr(storage.fs, "FileSystem", SimpleNamespace(from_uri=lambda _: (store, "")))
    monkeypatch.setattr(storage, "gettempdir", lambda: str(temporary))
    target = Storage("s3://bucket")
    new = target.new_file("t")
    new.file.write(b"x" * 100_000)
    new.sync()
    assert not list(temporary.iterdir())
    target.publish(new, "t/file")
    assert target.read("t/file") == b"x" * 100_000


def archive_small_files(place: str, kill_at: tuple[CommitPoint, int] | None = None) -> None:
    """The same in a new process: the client of an object store does not survive a fork."""
    layout.RANGE, file_writer.GROUP_ROWS = 8, 3
    with storage.named_faults(place):
        archive_in_two_steps(place, kill_at)


@only_thorough
@needs("moto_server")
def test_an_object_store_over_a_bad_network_gets_the_same_files(undisturbed: dict[str, bytes]) -> None:
    def run_at(path: str, kill_at: tuple[CommitPoint, int] | None = None) -> int | None:
        """Start it again after errors of the store, as a supervisor does."""
        for _ in range(20):
            process = SPAWN.Process(target=archive_small_files, args=(store.place(path), kill_at))
            process.start()
            process.join()
            if process.exitcode != 1:
                break
        return process.exitcode

    def objects(path: str) -> dict[str, bytes]:
        files = Storage(store.place(path))
        found = files._fs.get_file_info(fs.FileSelector(files._root, recursive=True))
        names = [each.path.removeprefix(f"{files._root}/") for each in found if each.is_file]
        return {name: files.read(name) or b"" for name in names}

    with object_store.running() as store:
        assert run_at("undisturbed") == 0
        assert objects("undisturbed") == undisturbed
        for step in CommitPoint:
            assert run_at(step, (step, 2)) == -signal.SIGKILL
            listed, read = (
                Archive(store.place(step)).manifest("t", 0),
                Archive(store.place(step)).read("t", 0),
            )
            assert [each for rows in read for each in rows["offset"].to_pylist()] == list(range(listed.end))
            assert run_at(step) == 0
            assert objects(step) == undisturbed
        assert min(store.faults.values()) > 10, store.faults


def test_a_reader_goes_on_when_its_tail_is_replaced(tmp_path: Path) -> None:
    target = Storage(str(tmp_path))
    write(tmp_path, {"t": {0: [records(0, 12)]}})
    reading = Archive(str(tmp_path)).read("t", 0)
    seen = next(reading)["offset"].to_pylist()
    writer = partition_writer(target, "t", 0, 8)
    for each in writer.add(records(8, 20)):
        commit.commit(target, "t", 0, each, lambda _: None)
    seen += [offset for read in reading for offset in read["offset"].to_pylist()]
    assert seen == list(range(12)), "to the end that the archive had when the reading began"
    writer.discard()


def test_a_reader_goes_on_when_an_object_store_deletes_the_tail_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, read_group, lost = Storage(str(tmp_path)), ParquetFile.read_row_group, list[str]()
    write(tmp_path, {"t": {0: [records(0, 12)]}})
    reading = Archive(str(tmp_path)).read("t", 0)
    seen = [offset for _ in range(4) for offset in next(reading)["offset"].to_pylist()]
    assert seen == list(range(11)), "it has read a part of the tail"
    writer = partition_writer(target, "t", 0, 8)
    for each in writer.add(records(8, 20)):
        commit.commit(target, "t", 0, each, lambda _: None)

    def read_once_it_is_found(self: ParquetFile, *of: object, **columns: object) -> object:
        if not lost:
            lost.append("404")
            raise FileNotFoundError("404")
        return read_group(self, *of, **columns)

    monkeypatch.setattr(ParquetFile, "read_row_group", read_once_it_is_found)
    assert [offset for read in reading for offset in read["offset"].to_pylist()] == [11]
    assert lost
    writer.discard()


def test_a_partition_counts_from_its_first_manifest_on(tmp_path: Path) -> None:
    write(tmp_path, {"t": {0: [records(0, 5)]}})
    directory, files = layout.partition_path("t", 1), Storage(str(tmp_path))
    with files.locked(directory):
        new = files.new_file(directory)
        assert Archive(str(tmp_path)).partitions("t") == [0], "its archiver has only begun"
        new.discard()
    commit.begin(files, Manifest("t", 1, "id", False))
    assert Archive(str(tmp_path)).partitions("t") == [0, 1]
    (tmp_path / layout.partition_path("t", 0) / layout.MANIFEST_FILE).unlink()
    assert Archive(str(tmp_path)).partitions("t") == [0, 1], "its files have lost their manifest"
    with pytest.raises(ArchiveError, match="has no partition 0"):
        Archive(str(tmp_path)).manifest("t", 0)


def test_created_directories_are_on_the_disk_before_a_file_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(storage, "_sync_directory", synced.append)
    files = Storage(str(tmp_path / "parent/archive"))
    with files.locked("t/partition=0"):
        parents = {tmp_path / name for name in ("", "parent", "parent/archive", "parent/archive/t")}
        assert set(synced) == parents
        new = files.new_file("t/partition=0")
        files.publish(new, "t/partition=0/day=1/file")
    assert set(synced[len(parents) :]) == {
        tmp_path / f"parent/archive/t/partition=0{name}" for name in ("", "/day=1")
    }
    synced.clear()
    with files.locked("t/partition=0"):
        assert synced == []


def test_expiry_deletes_whole_files_from_the_first_on(tmp_path: Path) -> None:
    target = Storage(str(tmp_path))
    days = [records(8 * number, 8 * number + 8, DAY + number) for number in range(3)]
    write(tmp_path, {"t": {0: [*days, records(24, 26, DAY + 3)]}})
    assert commit.expire(target, "t", 0, DAY * DAY_MS) == ()
    spans = commit.expire(target, "t", 0, (DAY + 2) * DAY_MS)
    assert [(span.first, span.end) for span in spans] == [(0, 8), (8, 16)]
    archive = Archive(str(tmp_path))
    assert archive.manifest("t", 0).begin == 16
    assert sorted(path.parent.name for path in tmp_path.rglob("*.parquet")) == [
        f"day={day_of((DAY + 2) * DAY_MS)}", "partition=0"
    ]  # fmt: skip
    with pytest.raises(ArchiveError, match="has offsets 16 to 26"):
        next(archive.read("t", 0, 3))
    commit.expire(target, "t", 0, (DAY + 99) * DAY_MS)
    assert archive.manifest("t", 0).begin == 24, "the tail is not expired: it has the archiver's position"


def test_a_reader_says_what_has_expired_while_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"t": {0: [records(0, 8), records(8, 16, DAY + 1), records(16, 18, DAY + 2)]}})
    archive = Archive(str(tmp_path))
    open_file = archive.storage.open

    def expire_first(name: str) -> object:
        if "day=" in name:
            commit.expire(Storage(str(tmp_path)), "t", 0, (DAY + 1) * DAY_MS)
        return open_file(name)

    reading = archive.read("t", 0)
    monkeypatch.setattr(archive.storage, "open", expire_first)
    with pytest.raises(ArchiveError, match="offsets 0 to 8 of t-0 have expired meanwhile; begin again"):
        next(reading)


def test_a_file_that_was_not_listed_does_not_stay_if_compaction_moves_its_end(tmp_path: Path) -> None:
    target = Storage(str(tmp_path))
    commit.create(target, {"profiles": "profiles"})

    def killed(step: CommitPoint) -> None:
        if step is CommitPoint.PUBLISHED:
            raise KeyboardInterrupt

    for offsets, reach in (([0, 1, 2, 3, 4, 5, 6], killed), ([0, 1, 2, 3, 5, 6], lambda _: None)):
        manifest = commit.begin(target, Manifest("profiles", 0, "id", True))
        writer = partition_writer(target, "profiles", 0, manifest.closed)
        rows = [(offset, (DAY + (offset > 3)) * DAY_MS, b"k", b"v") for offset in offsets]
        with suppress(KeyboardInterrupt):
            for each in [*writer.add(batch(rows)), writer.finish(Kind.TAIL)]:
                commit.commit(target, "profiles", 0, each, reach)
    rows_before_the_tail = dataset(str(tmp_path / "profiles"), format="parquet").count_rows()
    assert rows_before_the_tail == 4


def test_what_was_lost_is_an_error_unless_it_is_allowed(tmp_path: Path) -> None:
    target = Storage(str(tmp_path))
    write(tmp_path, {"t": {0: [records(0, 8)]}}, position=8)
    lost = file_writer.FinishedFile(commit.Span(Kind.LOST, 8, 30), None)
    commit.commit(target, "t", 0, lost, lambda _: None)
    archive = Archive(str(tmp_path))
    with pytest.raises(ArchiveError, match="offsets 8 to 30 of t-0 were deleted by retention"):
        list(archive.read("t", 0))
    assert sum(read.num_rows for read in archive.read("t", 0, allow_lost=True)) == 8


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.write_bytes(b""), "is damaged"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, damage: object, message: str) -> None:
    write(tmp_path, {"t": {0: [records(0, 8)]}})
    damage(next(tmp_path.rglob("*.parquet")))  # type: ignore[operator]
    with pytest.raises(ArchiveError, match=message):
        list(Archive(str(tmp_path)).read("t", 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "damaged"),
        (b"{}", "damaged"),
        (b'{"format": 2}', "has format 2"),
        (b'{"format": 1, "spans": []}', "damaged"),
    ],
)
def test_a_damaged_manifest_is_an_error(tmp_path: Path, text: bytes, message: str) -> None:
    write(tmp_path, {"t": {0: [records(0, 8)]}})
    next(tmp_path.rglob("_manifest.json")).write_bytes(text)
    with pytest.raises(ArchiveError, match=message):
        Archive(str(tmp_path)).manifest("t", 0)


def test_a_manifest_with_a_gap_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"t": {0: [records(0, 25)]}})
    path = next(tmp_path.rglob("_manifest.json"))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], *lines[2:]]))
    with pytest.raises(ArchiveError, match="a gap at offset 0"):
        Archive(str(tmp_path)).manifest("t", 0)


def test_an_archive_is_of_the_topics_that_it_began_with(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is no archive"):
        Archive(str(tmp_path))
    commit.create(Storage(str(tmp_path)), {"t": "one"})
    with pytest.raises(ArchiveError, match="is of the topic one, not of other"):
        commit.create(Storage(str(tmp_path)), {"t": "other"})
    with pytest.raises(ArchiveError, match="does not have the topic `u`"):
        Archive(str(tmp_path)).partitions("u")
    with pytest.raises(ArchiveError, match="cannot be opened"):
        Storage("nowhere://x")
