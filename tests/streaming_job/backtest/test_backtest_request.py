"""Backtests over archives that lack something: each is refused, or says what it leaves out."""

import json
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness.archives import batch, partition_writer
from harness.job_world import World, model_ref
from harness.log_world import DAY, START, TOPICS
from harness.memory_archive import MemoryArchive, archived
from harness.random_world import random_world
from harness.rollout_records import installed

from feature_store.archive import commit
from feature_store.archive.file_writer import FinishedFile
from feature_store.archive.manifest import Kind, Manifest, Span
from feature_store.archive.storage import Storage
from feature_store.utc import time_of
from loadtests.oracle import Record
from models.policy import Policy
from streaming_job.backtest.candidate import live_plans, newest_plan
from streaming_job.backtest.labels import Labels
from streaming_job.backtest.log import ArchiveLog, BacktestError, Decided
from streaming_job.backtest.request import Request, backtest
from streaming_job.backtest.run import Job, run
from streaming_job.backtest.tally import Tally
from streaming_job.backtest.window import Window, choose

pytestmark = pytest.mark.unit
FIRST_DAY = 20_000
EVERYTHING = Request(policy=Policy(0.0, 1), model="m/1")


class WorldJob(Job):
    """The job of a world."""

    world: World

    def rules(self, key_groups: Any) -> Any:
        """See `Job.rules`."""
        return self.world.rules(key_groups.groups)


@pytest.fixture
def world() -> World:
    return random_world(7)


@pytest.fixture
def records(world: World) -> list[Record]:
    """Records of the archive, sorted by topic."""
    return archived(world, world.run())


def report(
    world: World,
    records: list[Record],
    place: Path,
    decided_before: int = 10**15,
    moved_at: int | None = None,
    **topics: str,
) -> dict[str, Any]:
    """Report of a backtest; the job has decided the transactions that arrived before a time."""
    rules = world.rules(1)
    job = WorldJob(
        TOPICS.model_copy(update=topics), rules.key_groups.partitioner, rules.limits, "", place, None, 1
    )
    object.__setattr__(job, "world", world)
    decided = {
        (record.topic, record.partition): record.offset + 1
        for record in world.transactions
        if record.timestamp < decided_before
    }
    log = MemoryArchive(records, Random(1), world.partitions)
    return backtest(log, job, EVERYTHING, Decided(decided, moved_at), lambda name, version: model_ref())


def of_two_parts(place: Path, field: str) -> ArchiveLog:
    """An archive in which offsets 10 to 19 of partition 0, between its first day and its sixth, are lost."""
    storage = Storage(str(place))
    commit.create(storage, {field: field})
    for partition, parts in {0: [(0, 10, 0), (20, 30, 5)], 1: [(0, 15, 0), (15, 30, 5)]}.items():
        commit.begin(storage, Manifest(field, partition, "id", False))
        for first, end, day in parts:
            writer = partition_writer(storage, field, partition, first)
            rows = [(offset, (FIRST_DAY + day) * DAY + offset, b"k", b"v") for offset in range(first, end)]
            finished = [*writer.add(batch(rows)), writer.finish(Kind.FILE)]
            if (partition, first) == (0, 0):
                finished.append(FinishedFile(Span(Kind.LOST, 10, 20), None))
            for each in finished:
                commit.commit(storage, field, partition, each, lambda _: None)
    return ArchiveLog(str(place))


def test_a_window_begins_after_what_was_lost(tmp_path: Path) -> None:
    log = of_two_parts(tmp_path, "transactions")
    window, history = choose(log.extents("transactions").values(), 7 * DAY, 7, None)
    assert window.since == history.complete_from == (FIRST_DAY + 5) * DAY + 20
    assert history.begins == FIRST_DAY * DAY
    assert history.windows_whole_from == window.since + 37 * DAY


def test_other_topics_keep_what_is_before_a_loss_and_know_of_it(tmp_path: Path) -> None:
    log = of_two_parts(tmp_path, "fraud_alerts")
    assert sum(map(len, log.records("fraud_alerts", 0))) == 20
    assert log.has_lost("fraud_alerts", (FIRST_DAY + 4) * DAY)
    assert not log.has_lost("fraud_alerts", (FIRST_DAY + 6) * DAY)


def test_the_window_ends_where_the_archived_decisions_do(
    world: World, records: list[Record], tmp_path: Path
) -> None:
    half = sorted(record.timestamp for record in world.transactions)[70]
    behind = [each for each in records if each.topic != TOPICS.fraud_alerts or each.timestamp < half]
    whole, cut = report(world, records, tmp_path), report(world, behind, tmp_path, half)
    assert cut["window"]["until"] < whole["window"]["until"]
    assert cut["changes"]["new"]["alerts"] <= whole["changes"]["new"]["alerts"]
    with pytest.raises(BacktestError, match="has decided nothing of these days"):
        report(world, behind, tmp_path, START - DAY)


@pytest.mark.parametrize("field", ["transactions", "profiles", "fraud_alerts", "dead_letters"])
def test_an_archive_without_a_topic_is_refused(
    world: World, records: list[Record], tmp_path: Path, field: str
) -> None:
    with pytest.raises(BacktestError, match=f"has no elsewhere; correct FRAUD_TOPICS__{field.upper()}"):
        report(world, records, tmp_path, **{field: "elsewhere"})


def test_alerts_of_another_topic_show_that_the_cards_have_moved(
    world: World, records: list[Record], tmp_path: Path
) -> None:
    assert report(world, records, tmp_path)["history"]["whole"]
    alert = next(each for each in records if each.topic == TOPICS.fraud_alerts)
    former = json.loads(alert.value or b"")
    former |= {"source": {**former["source"], "topic": "former"}, "arrival_time": START - DAY}
    moved = alert._replace(value=json.dumps(former).encode(), timestamp=START - DAY)
    assert not report(world, [*records, moved], tmp_path)["history"]["whole"]


def test_what_was_in_other_partitions_before_the_cards_moved_is_neither_history_nor_window(
    world: World, records: list[Record], tmp_path: Path
) -> None:
    whole = report(world, records, tmp_path)
    half = sorted(record.timestamp for record in world.transactions)[70]
    moved = report(world, records, tmp_path, moved_at=half)
    assert whole["history"]["whole"]
    assert not moved["history"]["whole"]
    assert moved["window"]["since"] == time_of(half)
    assert moved["history"]["windows_whole_from"] > moved["window"]["since"]
    assert not report(world, records, tmp_path, moved_at=0)["history"]["whole"]
    with pytest.raises(BacktestError, match="has decided nothing of these days"):
        report(world, records, tmp_path, moved_at=10**14)


def test_without_the_schemas_of_framed_transactions_there_is_no_backtest(
    world: World, records: list[Record], tmp_path: Path
) -> None:
    with pytest.raises(BacktestError, match="has no elsewhere; correct FRAUD_TOPICS__RECORD_SCHEMAS, or"):
        report(world, records, tmp_path, record_schemas="elsewhere")


def test_rollouts_in_another_topic_are_missed(world: World, records: list[Record], tmp_path: Path) -> None:
    rules, topics = world.rules(1), TOPICS.model_copy(update={"model_rollouts": "elsewhere"})
    job = Job(topics, rules.key_groups.partitioner, rules.limits, "", tmp_path, None, 1)
    log = MemoryArchive(records, Random(1), world.partitions)
    decided = {(TOPICS.transactions, partition): 10**9 for partition in range(world.partitions)}
    with pytest.raises(BacktestError, match="the archive has no records of elsewhere"):
        backtest(log, job, Request(), Decided(decided), lambda name, version: model_ref())


def test_a_rollout_that_the_job_has_refused_is_not_live_although_its_dead_letter_is_gone(
    world: World, tmp_path: Path
) -> None:
    events = [
        *installed("first", model_ref("1"), Policy(0.5, 6)),
        *installed("second", model_ref("2"), Policy(0.1, 1)),
    ]
    records = [
        Record(TOPICS.model_rollouts, 0, offset, START + offset, None, event.to_json(), ())
        for offset, event in enumerate(events)
    ]
    log, rules = MemoryArchive(records, Random(1)), world.rules(1)
    job = Job(TOPICS, rules.key_groups.partitioner, rules.limits, "", tmp_path, None, 1)
    for refused, version in (({}, "2"), ({2: "model_refused"}, "1")):
        plan = newest_plan(live_plans(log, TOPICS, job.computed, refused))  # type: ignore[arg-type]
        assert plan.champion.model == model_ref(version)


class KilledTask:
    """A task whose second process is killed."""

    window, labels = Window(0, 1), Labels(TOPICS).by_hash()

    def decide(self, group: int, groups: int) -> Tally:
        if group:
            os.kill(os.getpid(), signal.SIGKILL)
        return Tally(self.window, self.labels)


def test_a_process_that_is_killed_ends_the_backtest_in_words() -> None:
    with pytest.raises(BacktestError, match="was killed, perhaps for lack of memory; give fewer --processes"):
        run(KilledTask(), 2)  # type: ignore[arg-type]
