"""The proof of an archive's files while an archiver writes it, and while files expire."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.archives import batch, partition_writer, write

from feature_store.archive import commit, layout
from feature_store.archive.manifest import Kind
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from streaming_job.archive.verify import Proof, verify_files

pytestmark = pytest.mark.unit
DAY = 20_000
END = 26


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "RANGE", 8)


def records(first: int, end: int) -> object:
    """A day for each file."""
    return batch([(offset, (DAY + offset // 8) * DAY_MS, b"k", b"v") for offset in range(first, end)])


def archive_more(place: Path) -> None:
    """Replace the tail of offsets 8 to 12 by two whole files and a longer tail."""
    target = Storage(str(place))
    writer = partition_writer(target, "transactions", 0, 8)
    finished = [*writer.add(records(8, END)), writer.finish(Kind.TAIL)]
    for each in filter(None, finished):
        commit.commit(target, "transactions", 0, each, lambda _: None)


def let_expire(place: Path) -> None:
    commit.expire(Storage(str(place)), "transactions", 0, (DAY + 1) * DAY_MS)


def lose(place: Path) -> None:
    next(place.rglob("_tail-*")).unlink()


@pytest.mark.parametrize(
    ("happens", "at", "proved", "problems"),
    [
        (archive_more, "_tail-", END, 0),
        (archive_more, "day=", END, 0),
        (let_expire, "day=", 12 - 8, 0),
        (lose, "_tail-", 12, 1),
    ],
)
def test_files_that_are_replaced_or_expire_meanwhile_are_not_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Path], None],
    at: str,
    proved: int,
    problems: int,
) -> None:
    write(tmp_path, {"transactions": {0: [records(0, 12)]}})
    archive, proof = Archive(str(tmp_path)), Proof()
    open_file, changes = archive.storage.open, [happens]

    def opened_after_it(name: str) -> object:
        if changes and at in name:
            changes.pop()(tmp_path)
        return open_file(name)

    monkeypatch.setattr(archive.storage, "open", opened_after_it)
    verify_files(archive, proof)
    assert not changes
    assert (proof.records, len(proof.problems)) == (proved, problems), proof.problems
