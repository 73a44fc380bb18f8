"""A first start finds out, on a real broker, before which arrival compaction may have removed profiles."""

import time
from pathlib import Path

import pytest
from harness.writer_bench import WriterBench

from deploy.local import topics as broker
from feature_store.archive.reader import Archive
from feature_store.archive.storage import Storage
from feature_store.catalogue import DAY_MS
from streaming_job.archive.archiver import Archiver
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.runtime.compaction import profiles_compacted_before

pytestmark = pytest.mark.integration

LAG_MS = 7 * DAY_MS


def now_ms() -> int:
    return int(time.time() * 1000)


def test_versions_of_the_last_week_are_there_and_all_of_a_topic_that_is_not_compacted(
    bench: WriterBench,
) -> None:
    topics = bench.topics.model_copy(update={"profiles": f"{bench.topics.transactions}-profiles"})
    settings = bench.settings.model_copy(update={"topics": topics})
    for is_replay in (False, True):
        broker.create(settings.bootstrap_servers, topics, replay=is_replay)
        began = now_ms()
        before = profiles_compacted_before(settings)
        if is_replay:
            assert before is None
        else:
            assert before is not None
            assert began <= before + LAG_MS <= now_ms()


def test_a_log_that_begins_in_an_archive_is_as_whole_as_that_was_when_it_began(
    bench: WriterBench, tmp_path: Path
) -> None:
    topics = bench.topics.model_copy(update={"profiles": f"{bench.topics.transactions}-profiles"})
    broker.create(bench.settings.bootstrap_servers, topics)
    place = str(tmp_path / "archive")
    letters = LetterSettings(bootstrap_servers=bench.settings.bootstrap_servers, topics=topics)
    began = now_ms()
    Archiver(letters, Storage(place), 0, accept_loss=False).close()
    ended = now_ms()
    time.sleep(0.01)
    Archiver(letters, Storage(place), 0, accept_loss=False).close()  # a later one changes nothing
    manifest = Archive(place).manifest("profiles", 0)
    assert began <= manifest.compacted_before_ms + LAG_MS <= ended
    settings = bench.settings.model_copy(update={"topics": topics, "log_archive": place})
    assert profiles_compacted_before(settings) == manifest.compacted_before_ms
