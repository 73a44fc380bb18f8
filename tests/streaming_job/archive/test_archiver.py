"""The archiver on a real broker: each committed record once, whatever is killed, run twice, or deleted.

log       day 1 ... | day 2 ... | day 3 ...      aborted and committed transactions on the outputs
archive   [a file  )[a file    )[ the tail       the same bytes after a SIGKILL at any step
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]
from harness import raw_records
from harness.archives import partition_writer
from harness.framed_records import avro, avro_schema, event
from harness.logins import logged_in
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from deploy.local.launch import FRAUD
from deploy.local.stack import Endpoints
from deploy.local.topics import create
from feature_store.archive import commit, file_writer
from feature_store.archive.commit import CommitPoint
from feature_store.archive.layout import MANIFEST_FILE, RECORD, ArchiveError
from feature_store.archive.manifest import Kind
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from loadtests.audit.archived_log import open_log
from loadtests.audit.topic_log import TopicLog, TopicReadError
from loadtests.faults.installation import Installation
from streaming_job.archive import verify
from streaming_job.archive.archiver import Archiver, Report, Timing, archive
from streaming_job.archive.commands import app
from streaming_job.archive.metrics import FAMILIES
from streaming_job.archive.partition import LostRecordsError
from streaming_job.archive.topics import ArchiveTopicError
from streaming_job.archive.verify import Proof, verify_files, verify_topics
from streaming_job.contracts.topic import Component
from streaming_job.contracts.topics import TABLE, Topics
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.decode import strict
from streaming_job.log import clients, end_offsets, follow
from streaming_job.log.clients import Address, Consumer
from streaming_job.log.end_offsets import with_retries
from streaming_job.log.errors import LogError
from streaming_job.log.topic_reader import topic_ids
from streaming_job.schemas import ledger

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
PARTITIONS = 2
TODAY = int(time.time() * 1000) // DAY_MS
FIRST_DAY = TODAY - 3
TIMING = Timing(tail_s=3600, report_s=3600)


BEGUN = rb'"compacted_before_ms": [1-9]\d*'
"""What of a manifest depends on when the archive began."""


@pytest.fixture
def settings(stack: Endpoints, topic_names: Callable[[], Topics]) -> LetterSettings:
    """New topics, whose records have the timestamps of their producers."""
    topics = topic_names()
    create(stack.bootstrap_servers, topics, replay=True, partitions=PARTITIONS)
    return LetterSettings(bootstrap_servers=stack.bootstrap_servers, topics=topics)


def send(settings: LetterSettings, days: range, count: int = 12) -> None:
    """Transactions of some days: plain ones, broken ones, some without key, value or headers."""
    producer = clients.producer(Address(settings.bootstrap_servers))
    for day in days:
        for number in range(count):
            value = raw_records.record(transaction_id=f"t-{day}-{number}", amount=number + 0.25)
            producer.produce(
                settings.topics.transactions,
                [value, value, value, b"{", None, b"\xff"][number % 6],
                [b"c-1", None][number % 7 == 3],
                partition=number % PARTITIONS,
                timestamp=day * DAY_MS + number,
                headers=[("h", b"1"), ("h", None), ("other", b"\x00\xff")][: number % 4],
            )
    assert producer.flush(30) == 0


def send_outputs(settings: LetterSettings, *, transactions: int = 6) -> None:
    """Alerts in Kafka transactions, of which every second is aborted."""
    producer = clients.producer(
        Address(settings.bootstrap_servers), fixed={"transactional.id": f"t-{settings.topics.fraud_alerts}"}
    )
    producer.init_transactions(30)
    for number in range(transactions):
        producer.begin_transaction()
        for topic in (settings.topics.fraud_alerts, settings.topics.job_progress):
            producer.produce(topic, b"value %d" % number, b"key", partition=0, headers=[("commit_id", b"7")])
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def run(
    settings: LetterSettings, place: Path, *, accept_loss: bool = False, switched: bool = False
) -> list[Report]:
    storage, reports = Storage(str(place)), list[Report]()
    archive(
        settings, storage, TIMING, Event(), reports.append,
        until_now=True, accept_loss=accept_loss, switched=switched,
    )  # fmt: skip
    return reports


def process(
    settings: LetterSettings, place: Path, *options: str, log: Path | None = None, **variables: str
) -> subprocess.Popen[bytes]:
    """`fraud archive run` in a process of its own."""
    names = {f"FRAUD_TOPICS__{name.upper()}": topic for name, topic in settings.topics.model_dump().items()}
    servers = {"FRAUD_BOOTSTRAP_SERVERS": settings.bootstrap_servers}
    with Path(log or os.devnull).open("wb") as output:
        return subprocess.Popen(
            [*FRAUD, "archive", "run", str(place), *options],
            env={**os.environ, **names, **servers, **variables},
            stdout=output,
            stderr=output,
        )


def archived(place: Path) -> dict[str, bytes]:
    """Content of all files by name, but for locks and what a dead writer has left."""
    return {
        str(path.relative_to(place)): re.sub(BEGUN, b"", path.read_bytes())
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name != "_lock" and not path.name.startswith("_new-")
    }


def proof(settings: LetterSettings, place: Path) -> Proof:
    result = Proof()
    verify_files(Archive(str(place)), result)
    verify_topics(Archive(str(place)), settings, result)
    return result


def of_archive(place: Path, field: str) -> list[tuple[Any, ...]]:
    opened = Archive(str(place))
    return [
        (
            partition, row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for partition in opened.partitions(field)
        for batch in opened.read(field, partition)
        for row in batch.to_pylist()
    ]  # fmt: skip


def of_log(settings: LetterSettings, field: str) -> list[tuple[Any, ...]]:
    records = TopicLog(settings.bootstrap_servers).read(getattr(settings.topics, field))
    return sorted(
        (each.partition, each.offset, each.timestamp, each.key, each.value, each.headers) for each in records
    )


def test_each_committed_record_of_every_topic_is_archived(settings: LetterSettings, tmp_path: Path) -> None:
    send(settings, range(FIRST_DAY, TODAY))
    send_outputs(settings)
    (report,) = run(settings, tmp_path)
    fields = {field for field, row in TABLE.items() if row.is_archived and getattr(settings.topics, field)}
    opened = Archive(str(tmp_path))
    assert set(opened.topics) == fields
    for field in fields:
        assert of_archive(tmp_path, field) == of_log(settings, field)
    assert report.unread == 0
    ends = TopicLog(settings.bootstrap_servers).ends(settings.topics.job_progress)
    assert commit.settled_of(Storage(str(tmp_path))) == ends
    assert len(of_archive(tmp_path, "transactions")) == 36
    assert len(of_archive(tmp_path, "fraud_alerts")) == 3
    kinds = [span.kind for span in opened.manifest("transactions", 0).spans]
    assert kinds == [Kind.FILE, Kind.FILE, Kind.TAIL], "a file ends when the day does"
    result = proof(settings, tmp_path)
    assert not result.problems
    assert result.records == result.compared > 39
    assert result.holes["transaction markers and aborted"] > 0


def test_contract_columns_are_what_decodes(settings: LetterSettings, tmp_path: Path) -> None:
    send(settings, range(FIRST_DAY, FIRST_DAY + 1), count=60)
    run(settings, tmp_path)
    rows = [row for batch in Archive(str(tmp_path)).read("transactions", 0) for row in batch.to_pylist()]
    decoded = 0
    for row in rows:
        try:
            fields = strict.transaction(row["value"])
        except strict.Rejected:
            fields = dict.fromkeys(strict.FIELDS)
        decoded += fields["amount"] is not None
        assert {name: row[name] for name in strict.FIELDS} == {name: fields[name] for name in strict.FIELDS}
    assert 0 < decoded < len(rows)


def test_a_killed_archiver_changes_nothing(settings: LetterSettings, tmp_path: Path) -> None:
    send(settings, range(FIRST_DAY, TODAY))
    send_outputs(settings)
    run(settings, tmp_path / "undisturbed")
    place, points = tmp_path / "killed", tmp_path / "points"
    points.mkdir()
    for step in CommitPoint:  # the archives of one step are those that the next continues
        (points / step).touch()
        killed = process(settings, place, "--until-now", FRAUD_CRASH_POINTS=str(points))
        while not list(points.glob(f"{step}.*")):
            assert killed.poll() is None, f"it has ended without {step}"
            time.sleep(0.02)
        killed.kill()
        killed.wait()
    run(settings, place)
    assert archived(place) == archived(tmp_path / "undisturbed")
    assert not list(place.rglob("_new-*"))


def test_two_archivers_at_once_write_one_archive(settings: LetterSettings, tmp_path: Path) -> None:
    send(settings, range(FIRST_DAY, TODAY), count=100)
    run(settings, tmp_path / "one")
    with ThreadPoolExecutor() as both:
        for each in [both.submit(run, settings, tmp_path / "two") for _ in range(3)]:
            each.result()
    assert archived(tmp_path / "two") == archived(tmp_path / "one")


def test_an_archive_in_steps_equals_one_at_once(
    settings: LetterSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "GROUP_ROWS", 5)
    for day in (FIRST_DAY, FIRST_DAY + 1):
        for count in (3, 20):
            send(settings, range(day, day + 1), count)
            send_outputs(settings, transactions=2)
            run(settings, tmp_path / "steps")
    run(settings, tmp_path / "once")
    assert archived(tmp_path / "steps") == archived(tmp_path / "once")


def test_records_that_retention_took_are_an_error_or_recorded_as_lost(
    settings: LetterSettings, tmp_path: Path
) -> None:
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    run(settings, tmp_path)
    before = of_archive(tmp_path, "transactions")
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    admin = clients.admin(Address(settings.bootstrap_servers))
    for answer in admin.delete_records([TopicPartition(settings.topics.transactions, 0, 9)]).values():
        answer.result()
    with pytest.raises(
        LostRecordsError, match=r"offsets 6 to 9 of .* were deleted before they were archived"
    ):
        run(settings, tmp_path)
    assert of_archive(tmp_path, "transactions") == before
    run(settings, tmp_path, accept_loss=True)
    opened = Archive(str(tmp_path))
    spans = [(span.kind, span.first, span.end) for span in opened.manifest("transactions", 0).spans]
    assert spans == [(Kind.FILE, 0, 6), (Kind.LOST, 6, 9), (Kind.TAIL, 9, 12)]
    with pytest.raises(ArchiveError, match="offsets 6 to 9"):
        list(opened.read("transactions", 0))
    result = proof(settings, tmp_path)
    assert not result.problems
    assert result.holes["deleted before they were archived"] == 3


def test_an_audit_reads_what_retention_has_cut(
    settings: LetterSettings, tmp_path: Path, stack: Endpoints
) -> None:
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    send_outputs(settings)
    run(settings, tmp_path)
    admin, topic = clients.admin(Address(settings.bootstrap_servers)), settings.topics.transactions
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    whole = sorted(TopicLog(settings.bootstrap_servers).read(topic), key=lambda each: each[1:3])
    for answer in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        answer.result()
    of_job = Installation(stack, settings.topics, tmp_path / "installation").settings
    log = open_log(of_job, str(tmp_path))
    assert sorted(log.read(topic), key=lambda each: each[1:3]) == whole
    assert log.beginnings(topic) == {0: 0, 1: 0}
    assert log.ends(topic) == {0: 12, 1: 12}
    some = [each for each in whole if each.partition == 0 and 3 <= each.offset < 8]
    assert list(log.read(topic, {0: 8}, {0: 3})) == some
    assert len(list(log.read(settings.topics.fraud_alerts))) == 3
    for answer in admin.delete_records([TopicPartition(topic, 0, 9)]).values():
        answer.result()
    with pytest.raises(TopicReadError, match=r"offsets 6 to 9 of .*-0 are neither in the archive nor in"):
        open_log(of_job, str(tmp_path))


def test_a_topic_that_was_created_again_is_refused(settings: LetterSettings, tmp_path: Path) -> None:
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    run(settings, tmp_path)
    admin = clients.admin(Address(settings.bootstrap_servers))
    admin.delete_topics([settings.topics.transactions])[settings.topics.transactions].result()
    with pytest.raises(ArchiveTopicError, match="create it with `fraud job topics`"):
        run(settings, tmp_path)
    create(settings.bootstrap_servers, settings.topics, replay=True, partitions=PARTITIONS)
    with pytest.raises(ArchiveTopicError, match="was deleted and created again"):
        run(settings, tmp_path)


def test_an_archive_goes_on_after_a_switch_to_a_replay_and_back(
    settings: LetterSettings, tmp_path: Path, topic_names: Callable[[], Topics]
) -> None:
    rollouts = topic_names().model_rollouts
    switched = settings.model_copy(
        update={"topics": settings.topics.model_copy(update={"model_rollouts": rollouts})}
    )
    create(settings.bootstrap_servers, switched.topics, replay=True, partitions=PARTITIONS)
    producer = clients.producer(Address(settings.bootstrap_servers))
    for number, topic in enumerate((settings.topics.model_rollouts, rollouts, rollouts)):
        producer.produce(topic, b"event %d" % number, partition=0)
    producer.flush(30)
    run(settings, tmp_path)
    with pytest.raises(ArchiveError, match=r"give another directory, or --switched if the"):
        run(switched, tmp_path)
    run(switched, tmp_path, switched=True)
    run(switched, tmp_path)
    (former,) = Archive(str(tmp_path)).former()
    assert [len(of_archive(tmp_path, "model_rollouts")), former.topics] == [
        2,
        {"model_rollouts": settings.topics.model_rollouts},
    ]
    result = proof(switched, tmp_path)
    # of the former topic, files are proved, but no records compared
    assert (result.problems, result.records - result.compared) == ([], 1)
    run(settings, tmp_path, switched=True)
    assert [row[4] for row in of_archive(tmp_path, "model_rollouts")] == [b"event 0"]
    (former,) = Archive(str(tmp_path)).former()
    assert former.topics == {"model_rollouts": rollouts}


def test_a_topic_that_lost_its_newest_records_and_was_filled_again_is_refused(
    settings: LetterSettings, tmp_path: Path
) -> None:
    """What is archived and what the log holds now would not be one history."""
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    run(settings, tmp_path)
    run(settings, tmp_path)  # the log is as it was
    topic, admin = settings.topics.transactions, clients.admin(Address(settings.bootstrap_servers))
    old = topic_ids(admin, [topic])[topic]()
    admin.delete_topics([topic])[topic].result()
    create(settings.bootstrap_servers, settings.topics, replay=True, partitions=PARTITIONS)
    send(settings, range(FIRST_DAY + 1, FIRST_DAY + 2), count=20)
    new = topic_ids(admin, [topic])[topic]()
    for manifest in tmp_path.glob(f"{topic}/*/{MANIFEST_FILE}"):  # a topic that loses its tail keeps its id
        manifest.write_text(manifest.read_text().replace(old, new))
    before = archived(tmp_path)
    with pytest.raises(LogError, match=rf"{topic}-0 holds a record that arrived at \d+ ms at offset 5"):
        run(settings, tmp_path)
    assert archived(tmp_path) == before


EACH_SECOND = Timing(1, 1)


@contextmanager
def archiving(
    settings: LetterSettings, directory: Path, wait_for: Callable[..., Any], timing: Timing = EACH_SECOND
) -> Iterator[tuple[Future[Any], list[Report]]]:
    """An archiver that runs until the end of the block; yields it and its reports, after the first one."""
    stop, reports = Event(), list[Report]()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(
            archive, settings, Storage(str(directory)), timing, stop, reports.append,
            until_now=False, accept_loss=False,
        )  # fmt: skip
        try:
            wait_for(lambda: reports or running.done(), what="a report")
            yield running, reports
        finally:
            stop.set()
        running.result()


def test_a_topic_that_is_created_again_while_it_is_archived_is_not_taken_for_the_former(
    settings: LetterSettings, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    """Its records have the offsets that come after those that were read."""
    send(settings, range(FIRST_DAY, FIRST_DAY + 1))
    run(settings, tmp_path)
    topic, before = settings.topics.transactions, archived(tmp_path)

    def archive_meanwhile() -> None:
        with archiving(settings, tmp_path, wait_for, Timing(3600, 1)) as (running, _):
            admin = clients.admin(Address(settings.bootstrap_servers))
            admin.delete_topics([topic])[topic].result()
            create(settings.bootstrap_servers, settings.topics, replay=True, partitions=PARTITIONS)
            send(settings, range(FIRST_DAY, FIRST_DAY + 1), count=40)
            wait_for(running.done, what="its end", deadline_s=60)

    with pytest.raises(ArchiveTopicError, match=f"{topic} was deleted and created again"):
        archive_meanwhile()
    assert archived(tmp_path) == before


def test_new_partitions_are_archived_while_it_runs(
    settings: LetterSettings,
    tmp_path: Path,
    wait_for: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(end_offsets, "NEW_PARTITIONS_S", 0.5)
    with archiving(settings, tmp_path, wait_for) as (_, reports):
        grown = NewPartitions(settings.topics.labels, PARTITIONS + 1)
        admin = clients.admin(Address(settings.bootstrap_servers))
        admin.create_partitions([grown])[settings.topics.labels].result()
        producer = clients.producer(Address(settings.bootstrap_servers))
        wait_for(lambda: PARTITIONS in Archive(str(tmp_path)).partitions("labels"), what="the new partition")
        producer.produce(settings.topics.labels, b"v", partition=PARTITIONS)
        producer.flush(30)
        wait_for(lambda: Archive(str(tmp_path)).manifest("labels", PARTITIONS).rows, what="its record")
        sent_s = time.time()
        wait_for(lambda: reports[-1].listed_until_s > sent_s, what="an archive that is complete")


def test_schemas_of_framed_transactions_are_read_once_and_then_followed(
    settings: LetterSettings,
    tmp_path: Path,
    topic_names: Callable[[], Topics],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_writer, "GROUP_ROWS", 5)
    name = f"record-schemas-{topic_names().labels}"
    topics = settings.topics.model_copy(update={"record_schemas": name})
    settings = settings.model_copy(update={"topics": topics})
    create(settings.bootstrap_servers, topics, replay=True, partitions=PARTITIONS)
    read: list[int] = []

    def to_end(reader: Consumer, start: TopicPartition) -> Iterator[Message]:
        for message in follow.to_end(reader, start):
            read.append(message.offset() or 0)
            yield message

    monkeypatch.setattr(ledger, "follow", SimpleNamespace(to_end=to_end))
    producer, fields = clients.producer(Address(settings.bootstrap_servers)), json.loads(raw_records.record())
    archiver = Archiver(settings, Storage(str(tmp_path)), 0, accept_loss=False, replaceable=())
    try:
        for number in (1, 2):
            producer.produce(name, event(number, avro_schema()), b"%d" % number, partition=0)
            producer.flush(30)
            for _ in range(12):
                producer.produce(topics.transactions, avro(number, avro_schema(), fields), partition=0)
            producer.flush(30)
            # not by the number of records: tests share the topic of profiles, which is archived, too
            ends = {(name, 0): number, (topics.transactions, 0): 12 * number}
            while any(archiver._log.positions[tp] < end for tp, end in ends.items()):
                archiver._step()
        archiver.write_tails(is_last=True)
    finally:
        archiver.close()
    amounts = [
        row["amount"] for batch in Archive(str(tmp_path)).read("transactions", 0) for row in batch.to_pylist()
    ]
    assert amounts == [fields["amount"]] * 24
    assert read == [0, 1]


def test_topics_of_facts_that_are_created_later_are_archived_while_it_runs(
    settings: LetterSettings,
    tmp_path: Path,
    topic_names: Callable[[], Topics],
    wait_for: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(end_offsets, "NEW_PARTITIONS_S", 0.5)
    absent = {field: getattr(topic_names(), field) for field in ("labels", "merchant_facts")}
    settings = settings.model_copy(update={"topics": settings.topics.model_copy(update=absent)})
    with archiving(settings, tmp_path, wait_for) as (running, reports):
        assert absent.keys().isdisjoint(Archive(str(tmp_path)).topics)
        create(settings.bootstrap_servers, settings.topics, replay=True, partitions=PARTITIONS)
        producer = clients.producer(Address(settings.bootstrap_servers))
        producer.produce(absent["labels"], b"v", partition=1)
        producer.flush(30)
        wait_for(lambda: "labels" in Archive(str(tmp_path)).topics or running.done(), what="the topic")
        wait_for(lambda: 1 in Archive(str(tmp_path)).partitions("labels"), what="its partition")
        wait_for(lambda: Archive(str(tmp_path)).manifest("labels", 1).rows, what="its record")
        sent_s = time.time()
        wait_for(lambda: reports[-1].listed_until_s > sent_s, what="an archive that is complete")
    assert "merchant_facts" in Archive(str(tmp_path)).topics


def test_records_of_a_partition_that_is_not_archived_yet_do_not_count_as_listed(
    settings: LetterSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> None:
    monkeypatch.setattr(end_offsets, "NEW_PARTITIONS_S", 0.0)
    archiver = Archiver(settings, Storage(str(tmp_path)), 0, accept_loss=False, replaceable=())
    try:
        before = archiver.report().unread  # other tests write to the topic of profiles, too
        grown = NewPartitions(settings.topics.labels, PARTITIONS + 1)
        admin = clients.admin(Address(settings.bootstrap_servers))
        admin.create_partitions([grown])[settings.topics.labels].result()
        producer, labels = clients.producer(Address(settings.bootstrap_servers)), settings.topics.labels
        wait_for(
            lambda: PARTITIONS in producer.list_topics(labels, 10).topics[labels].partitions,
            what="the new partition",
        )
        producer.produce(labels, b"v", partition=PARTITIONS)
        producer.flush(30)
        wait_for(lambda: archiver.report().unread == before + 1, what="the record's partition")
        sent_s = time.time()
        for _ in range(3):
            archiver.write_tails(is_last=False)
        assert archiver.report().listed_until_s < sent_s
    finally:
        archiver.close()


def test_a_running_archiver_exports_how_far_it_is(
    settings: LetterSettings, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    send(settings, range(FIRST_DAY, TODAY))
    run(settings, tmp_path / "archive")
    running = process(
        settings, tmp_path / "archive", "--metrics-port=0", "--report-every=1", log=tmp_path / "log"
    )
    try:
        wait_for(lambda: "not listed yet" in (tmp_path / "log").read_text(), what="a report")
        (address,) = re.findall(r"metrics: (http\S+)", (tmp_path / "log").read_text())
        with urlopen(address) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            page = {family.name: family.samples for family in families}
        # all tests share the topic of profiles, so the newest record may be one of them
        newest_ms = max(row[2] for field in Archive(str(tmp_path / "archive")).topics
                        for row in of_archive(tmp_path / "archive", field))  # fmt: skip
        assert page["fraud_archive_timestamp_seconds"][0].value == newest_ms / 1000, "not yet known"
        assert page["fraud_archive_unread_offsets"][0].value == 0
        assert {family.name for family in FAMILIES} <= set(page)
        taken = process(
            settings, tmp_path / "archive", f"--metrics-port={urlsplit(address).port}", log=tmp_path / "other"
        )
        assert taken.wait(60) == 1
        assert "give others with --metrics-port" in (tmp_path / "other").read_text()
    finally:
        running.terminate()
    assert running.wait(60) == 0


def damaged(place: Path) -> None:
    path = sorted(place.rglob("day=*/*.parquet"))[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def missing(place: Path) -> None:
    sorted(place.rglob("day=*/*.parquet"))[0].unlink()


@pytest.mark.parametrize(
    ("harm", "message"), [(damaged, "is not the file of the manifest"), (missing, "is missing")]
)
def test_verify_finds_damaged_files(
    settings: LetterSettings, tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    send(settings, range(FIRST_DAY, TODAY))
    run(settings, tmp_path)
    harm(tmp_path)
    done = CliRunner().invoke(app, ["verify", str(tmp_path), "--files-only"])
    assert done.exit_code == 1
    assert message in done.output


def test_what_is_archived_while_the_topics_are_compared_is_no_loss(
    settings: LetterSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # all other tests share the topic of profiles
    topics = settings.topics.model_copy(update={"profiles": f"profiles-of-{settings.topics.transactions}"})
    create(settings.bootstrap_servers, topics, replay=True, partitions=PARTITIONS)
    settings = settings.model_copy(update={"topics": topics})
    send(settings, range(FIRST_DAY, TODAY))
    run(settings, tmp_path)

    def asked_before_more_is_archived(ask: Callable[[], Any]) -> Any:
        answer = with_retries(ask)
        send(settings, range(FIRST_DAY, TODAY))
        run(settings, tmp_path)
        return answer

    monkeypatch.setattr(verify, "with_retries", asked_before_more_is_archived)
    result = Proof()
    verify_topics(Archive(str(tmp_path)), settings, result)
    assert not result.problems
    assert result.compared == 36


def test_verify_finds_what_differs_from_the_topics(settings: LetterSettings, tmp_path: Path) -> None:
    """An archive that agrees with its manifests, but was made of other records."""
    send(settings, range(FIRST_DAY, TODAY))
    run(settings, tmp_path)
    storage = Storage(str(tmp_path))
    opened = Archive(str(tmp_path))
    name, manifest = settings.topics.transactions, opened.manifest("transactions", 0)
    whole = list(opened.read("transactions", 0))
    for changed, text in (
        (lambda batch: batch.slice(1), "are not in the archive, the first at offset"),
        (lambda batch: batch.set_column(3, batch.schema.field(3), batch["key"]), "differ from those"),
    ):
        commit._write(storage, replace(manifest, spans=(), begin=0))
        writer = partition_writer(storage, "transactions", 0, 0, topic=name)
        for batch in whole:
            for finished in writer.add(changed(batch.select(RECORD.names))):
                commit.commit(storage, name, 0, finished, lambda _: None)
        tail = writer.finish(Kind.TAIL)
        assert tail is not None
        commit.commit(storage, name, 0, tail, lambda _: None)
        result = proof(settings, tmp_path)
        assert len(result.problems) >= 1
        assert text in result.problems[0]


def test_the_permissions_of_the_archiver_suffice(
    stack: Endpoints, settings: LetterSettings, tmp_path: Path
) -> None:
    assert stack.guarded is not None
    installed = Installation(stack, settings.topics, tmp_path / "installation")
    servers, client = stack.guarded
    changes = {"bootstrap_servers": servers, "kafka": client, "merchant_facts": True}
    login = logged_in(installed, Component.ARCHIVE, **changes)
    send(settings, range(FIRST_DAY, TODAY))
    as_archiver = LetterSettings(bootstrap_servers=servers, kafka=login.kafka, topics=settings.topics)
    run(as_archiver, tmp_path / "archive")
    assert of_archive(tmp_path / "archive", "transactions") == of_log(settings, "transactions")
    assert not proof(as_archiver, tmp_path / "archive").problems
