"""A first start finds out, on a real broker, what compaction and retention have taken from its log."""

import time
from pathlib import Path
from threading import Event

import orjson
import pytest
from confluent_kafka import TopicPartition
from harness.progress_records import progress
from harness.writer_bench import WriterBench

from deploy.local import topics as broker
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS, HOUR_MS, MINUTE_MS
from loadtests.faults.record_producer import RecordProducer
from streaming_job.archive.archiver import Timing, archive
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log.losses import Losses
from streaming_job.runtime import lost_log
from streaming_job.settings import JobSettings

pytestmark = pytest.mark.integration

LAG_MS, WINDOWS_MS = 7 * DAY_MS - HOUR_MS, 37 * DAY_MS + 5 * MINUTE_MS
"""Age of versions that compaction does not remove, less an hour; longest window, lateness and skew."""


@pytest.fixture
def settings(bench: WriterBench) -> JobSettings:
    """A job whose topics are all its own; those of a live job, with two partitions."""
    topics = bench.topics.model_copy(update={"profiles": f"{bench.topics.transactions}-profiles"})
    broker.create(bench.settings.bootstrap_servers, topics)
    return bench.settings.model_copy(update={"topics": topics})


def now_ms() -> int:
    return int(time.time() * 1000)


def write(settings: JobSettings, partitions: list[int]) -> None:
    """Write a record to each of these partitions of the transactions."""
    producer = RecordProducer(settings.bootstrap_servers, settings.partitioner)
    for partition in partitions:
        producer.produce(settings.topics.transactions, b"card", b"{}", partition)
    producer.flush()


def delete(settings: JobSettings, before: int) -> None:
    """Delete the records of partition 1 before an offset, as retention does."""
    partition = TopicPartition(settings.topics.transactions, 1, before)
    admin = broker.admin(settings.bootstrap_servers)
    (answer,) = admin.delete_records([partition]).values()
    answer.result(20)


def test_versions_of_the_last_week_are_there_and_all_of_a_topic_that_is_not_compacted(
    settings: JobSettings,
) -> None:
    began = now_ms()
    losses = lost_log.find(settings)
    assert losses.profiles_before is not None
    assert began <= losses.profiles_before + LAG_MS <= now_ms()
    assert losses.windows_before is None
    broker.create(settings.bootstrap_servers, settings.topics, replay=True)
    assert lost_log.find(settings) == Losses()


def test_windows_are_whole_37_days_after_the_oldest_transaction_of_a_log_that_was_cut(
    settings: JobSettings,
) -> None:
    write(settings, [0, 1] * 5)
    began = now_ms()
    delete(settings, before=3)
    before = lost_log.find(settings).windows_before
    assert before is not None
    assert began - 60_000 < before - WINDOWS_MS <= now_ms()
    delete(settings, before=5)
    gone = now_ms()
    before = lost_log.find(settings).windows_before
    assert before is not None
    assert gone <= before - WINDOWS_MS <= now_ms()


def test_a_log_that_begins_in_an_archive_is_as_whole_as_that_was_when_it_began(
    settings: JobSettings, tmp_path: Path
) -> None:
    place = str(tmp_path / "archive")
    write(settings, [1])
    letters = LetterSettings(bootstrap_servers=settings.bootstrap_servers, topics=settings.topics)
    began = now_ms()
    for _ in range(2):  # a later archiver changes nothing
        archive(
            letters, Storage(place), Timing(3600, 3600), Event(), lambda _: None,
            until_now=True, accept_loss=False,
        )  # fmt: skip
    manifest = Archive(place).manifest("profiles", 0)
    assert began <= manifest.compacted_before_ms + LAG_MS <= now_ms()
    delete(settings, before=1)
    assert lost_log.find(settings).windows_before is not None
    archived = settings.model_copy(update={"log_archive": place})
    assert lost_log.find(archived) == Losses(manifest.compacted_before_ms)


def test_transactions_that_have_moved_have_left_their_past_behind(settings: JobSettings) -> None:
    """The new partitions begin at offset 0; a state that is read from them lacks what came before."""
    write(settings, [0, 1])
    taken_over = {
        "query_id": "p", "release": "r", "key_groups": 1, "commit_id": 1, "at": 5_000, "asked_by": "me",
        "moved": True,
    }  # fmt: skip
    record = progress(1, 0, job_id=settings.job_id, key_groups=1, takeover=taken_over)
    producer = RecordProducer(settings.bootstrap_servers, settings.partitioner)
    producer.produce(settings.topics.job_progress, settings.job_id.encode(), orjson.dumps(record))
    producer.flush()
    assert lost_log.find(settings).windows_before is None
    successor = settings.model_copy(update={"predecessor": "q"})
    assert lost_log.find(successor).windows_before == 5_000 + WINDOWS_MS
