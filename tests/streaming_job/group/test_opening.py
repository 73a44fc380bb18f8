"""Each opening of a group checks the log and the topics, whoever has opened the group before."""

from collections.abc import Collection

import pytest
from harness.job_world import World
from harness.log_world import TOPICS
from harness.memory_job import MemoryJob
from harness.memory_log import Fate, MemoryLog, as_written

from feature_store.state.journal import load_meta
from streaming_job.group.stored_positions import positions_of
from streaming_job.log import errors
from streaming_job.log.errors import LogError
from streaming_job.log.records import Offsets
from streaming_job.progress import last_record
from streaming_job.runtime.checkpoint_errors import CheckpointError

pytestmark = pytest.mark.unit

TX = (TOPICS.transactions, 0)
COUNT = 40


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> MemoryJob:
    """A group that has written an alert for each transaction, and goes on from a checkpoint with P < Q.

    An epoch ran before that checkpoint, so that the state names the instance of the job.
    """
    monkeypatch.setattr(errors, "CONFIRM_S", 0.0)
    monkeypatch.setattr(errors, "LOOK_S", 0.0)
    world = World(rollout=False)
    world.rollout("r1", -3_600_000, threshold=0.0)
    for number in range(COUNT):
        world.tx(1000 * (number + 1), transaction_id=f"t{number}")
    job = MemoryJob(0, world.rules(), as_written(world), Fate(7))
    while not job.is_done:
        job.epoch(looks=2)
    read = [positions_of(load_meta(pieces)).get(TX, 0) for pieces in job.checkpoints]
    job.restore(next(number for number, offset in enumerate(read) if 0 < offset < read[-1]))
    return job


def instances(job: MemoryJob, instance: str | None) -> None:
    """Let the group be opened by the same run of the job, or by a new one."""
    if instance is not None:
        job.instance = instance


def p_and_q(job: MemoryJob) -> tuple[int, int]:
    return positions_of(load_meta(job.pieces))[TX], job.output.committed[TX]


BY = pytest.mark.parametrize("instance", [None, "another"])


@BY
def test_a_group_is_not_opened_on_a_log_that_ends_before_the_output(
    job: MemoryJob, instance: str | None
) -> None:
    """New transactions would get offsets below Q, and would be decided without output."""
    instances(job, instance)
    p, q = p_and_q(job)
    job.log.lose_tail(TX, (p + q) // 2)
    written = len(job.output.values("fraud_alerts"))
    with pytest.raises(LogError, match=rf"transactions-0 was read up to offset {q}, but ends at "):
        job.epoch(looks=2)
    assert (len(job.output.values("fraud_alerts")), job.output.committed[TX]) == (written, q)


@BY
@pytest.mark.parametrize("gap", [False, True])
def test_a_group_is_not_opened_on_a_log_that_was_filled_again_beyond_the_output(
    job: MemoryJob, instance: str | None, gap: bool
) -> None:
    """Ends beyond Q prove nothing. The last record's offset may also be that of a transaction marker now."""
    instances(job, instance)
    p, q = p_and_q(job)
    job.log.lose_tail(TX, (p + q) // 2)
    job.log.append(TX, [(b"card", b"{}")] * COUNT)
    assert job.log.end(TX) > q
    read = last_record.newest_read(job.output.progress)[TX]
    if gap:
        job.log.drop(TX, read.offset)
    written = len(job.output.values("fraud_alerts"))
    with pytest.raises(
        LogError, match=rf"transactions-0 holds (no|a) record .*at offset {read.offset}, and not the one"
    ):
        job.epoch(looks=2)
    assert (len(job.output.values("fraud_alerts")), job.output.committed[TX]) == (written, q)


@BY
def test_a_group_is_not_opened_without_its_offsets_and_progress(job: MemoryJob, instance: str | None) -> None:
    """The output from P on would be written twice."""
    instances(job, instance)
    job.output.committed, job.output.progress = {}, None
    written = len(job.output.values("fraud_alerts"))
    with pytest.raises(CheckpointError, match="the checkpoint is ahead of the topics"):
        job.epoch(looks=2)
    assert len(job.output.values("fraud_alerts")) == written


@BY
def test_a_table_that_ends_before_what_was_read_of_it_is_refused(
    job: MemoryJob, instance: str | None
) -> None:
    """Dead letters of new records below Q would be missing."""
    instances(job, instance)
    assert job.output.progress is not None
    rollouts = (TOPICS.model_rollouts, 0)
    job.log.lose_tail(rollouts, 0)
    with pytest.raises(LogError, match="model-rollouts-0 was read up to offset 2, but ends at 0"):
        job.epoch(looks=2)


def run(job: MemoryJob, epochs: int = 50) -> None:
    """Run epochs until everything is decided."""
    while not job.is_done and epochs:
        job.epoch(looks=5)
        epochs -= 1


def test_a_silent_group_that_comes_to_the_end_of_the_log_below_q_ends(job: MemoryJob) -> None:
    """The log loses its tail after the opening; what producers write then is not decided in silence."""
    p, q = p_and_q(job)
    job.epoch(looks=0)
    assert p_and_q(job)[0] < q
    job.log.lose_tail(TX, p + 1)
    with pytest.raises(LogError, match=rf"transactions-0 was read up to offset {q}, but ends at "):
        run(job)
    assert p_and_q(job)[1] == q


def test_an_end_that_is_too_low_for_a_moment_does_not_end_a_group(
    job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a new leader may report it before its followers have caught up."""
    monkeypatch.setattr(errors, "CONFIRM_S", 60.0)
    right, wrong_answers = MemoryLog.ends, [1, 2]

    def ends(log: MemoryLog, topics: Collection[str]) -> Offsets:
        answer = right(log, topics)
        return dict.fromkeys(answer, wrong_answers.pop() and 0) if wrong_answers else answer

    monkeypatch.setattr(MemoryLog, "ends", ends)
    written = len(job.output.values("fraud_alerts"))
    job.epoch(looks=5)
    assert not wrong_answers
    run(job)
    assert job.is_done
    assert len(job.output.values("fraud_alerts")) == written


def test_a_partition_that_ends_below_q_is_noticed_while_another_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New transactions of a partition beyond its Q are decided although another one is still behind."""
    world = World(rollout=False, partitions=2)
    world.rollout("r1", -3_600_000, threshold=0.0)
    cards = {world.partition_of(card): card for card in "abcdefgh"}
    for number in range(4 * COUNT):
        world.tx(1000 * (number + 1), card_id=cards[int(number >= COUNT)], transaction_id=f"t{number}")
    job = MemoryJob(0, world.rules(), as_written(world), Fate(7))
    while job.output.committed.get(TX, 0) < COUNT:
        job.epoch(looks=1)
    read = [positions_of(load_meta(pieces)).get(TX, 0) for pieces in job.checkpoints]
    job.restore(next(number for number, offset in enumerate(read) if offset))
    p, q = p_and_q(job)
    job.epoch(looks=0)
    job.log.lose_tail(TX, p + 1)
    monkeypatch.setattr(Fate, "up_to", lambda _, most: most)  # each call returns records
    with pytest.raises(LogError, match=rf"transactions-0 was read up to offset {q}, but ends at "):
        run(job)
    assert p_and_q(job)[1] == q
    assert not job.log.is_complete
