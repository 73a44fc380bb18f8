"""The proof of an archive beside an archiver, beside an expiry, and after a topic was created again."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from harness.archives import batch, partition_writer, write

from feature_store.archive import commit, layout
from feature_store.archive.manifest import Kind
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from streaming_job.archive import verify
from streaming_job.archive.topics import ArchivedTopic, ArchiveTopicError, require_same
from streaming_job.archive.verify import Proof, verify_files
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log import topic_reader
from streaming_job.log.records import Records, archived

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


class Topic:
    """The topic of which the archive is, in place of the brokers: all its records arrive four by four."""

    def __init__(self, *_: object, **__: object) -> None:
        self.positions = {("transactions", 0): 0}

    def __enter__(self) -> "Topic":
        return self

    def __exit__(self, *_: object) -> None: ...

    def first(self) -> dict[tuple[str, int], int]:
        return {("transactions", 0): 0}

    def last(self) -> dict[tuple[str, int], int]:
        return {("transactions", 0): END}

    def limit(self, ends: dict[tuple[str, int], int]) -> None: ...

    def close(self) -> None: ...

    def take(self, *_: float) -> list[Records]:
        first = self.positions["transactions", 0]
        end = self.positions["transactions", 0] = min(first + 4, END)
        read = pa.Table.from_batches([records(first, end)])
        return [replace(archived("transactions", {0: records(first, end)}), headers=read["headers"].chunk(0))]


def test_what_expires_while_the_topics_are_compared_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"transactions": {0: [records(0, END)]}})
    found = [ArchivedTopic("transactions", "transactions", "id", is_compacted=False, compacted_before_ms=0)]
    settings = LetterSettings(bootstrap_servers="nowhere")
    for name, stand_in in (("look_up", lambda *_: found), ("EndOffsets", Topic), ("LogFollower", Topic)):
        monkeypatch.setattr(verify, name, stand_in)
    whole, rest = Proof(), Proof()
    verify.verify_topics(Archive(str(tmp_path)), settings, whole)
    assert (whole.problems, whole.compared) == ([], END)

    class Expiring(Topic):
        def limit(self, ends: dict[tuple[str, int], int]) -> None:
            let_expire(tmp_path)

    monkeypatch.setattr(verify, "LogFollower", Expiring)
    verify.verify_topics(Archive(str(tmp_path)), settings, rest)
    assert (rest.problems, rest.compared) == ([], END - 8)


@pytest.mark.parametrize(("now", "is_same"), [("id", True), (None, True), ("other", False)])
def test_a_topic_that_is_created_again_while_it_is_archived_is_refused(
    now: str | None, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> str:
        if now is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return now

    monkeypatch.setattr(topic_reader, "topic_ids", lambda client, names: dict.fromkeys(names, ask))
    topic = ArchivedTopic("labels", "labels", "id", is_compacted=False, compacted_before_ms=0)
    with nullcontext() if is_same else pytest.raises(ArchiveTopicError, match="labels was deleted"):
        require_same(None, [topic], "/data/archive")  # type: ignore[arg-type]
