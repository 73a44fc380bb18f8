"""The working copy is valid only for the state with its token; in all other cases it is rebuilt."""

import fcntl
import multiprocessing
import shutil
import threading

import numpy as np
import pytest

from feature_store.catalogue import COLUMN
from feature_store.layout import PROFILE, TRANSACTION
from feature_store.state.arena import ArenaReplacedError, FileArena, MemoryArena
from feature_store.state.codec import StateDamagedError
from feature_store.state.deltas import Delta
from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta, append, load_meta, seal
from streaming_job.group import working_copy
from streaming_job.group.working_copy import WorkingCopy

pytestmark = pytest.mark.unit

LATENESS = 7 * 86_400_000
NOW = 1_780_000_200_000
DEADLINE_S = 60.0


def batch(state: GroupState, meta: Meta, store: MemoryPieces, number: int, cards: int = 50) -> float:
    """Apply one transaction of every card; return how many the first card had before."""
    rows = np.zeros(cards, dtype=TRANSACTION)
    rows["hi"] = rows["lo"] = np.arange(1, cards + 1)
    rows["transaction"] = number
    rows["time"] = rows["arrival"] = NOW + number
    numbers = state.card_numbers(rows)
    applied = state.apply(rows, numbers)
    no_changes = np.zeros(0, dtype=PROFILE)
    append(
        store, meta, state, Delta(no_changes, np.zeros(0, np.int32), rows, numbers, np.zeros(cards, np.bool_))
    )
    seal(store, meta)
    return float(applied.features[0, COLUMN["count_1m"]]) - 1


def run(copy: WorkingCopy, store: MemoryPieces, number: int, cards: int = 50) -> float:
    """Run an epoch of one batch."""
    meta = load_meta(store)
    state = copy.take(meta, store)
    try:
        return batch(state, meta, store, number, cards)
    finally:
        copy.release(meta)


def test_copy_is_used_again_without_a_rebuild(tmp_path):
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    assert [run(copy, store, number) for number in range(5)] == [0, 1, 2, 3, 4]
    assert copy.rebuilds == 0


def test_another_process_takes_over_the_working_copy(tmp_path):
    """Two objects on one directory stand for two workers, each of which finds the other's state."""
    first, other, store = WorkingCopy(tmp_path, LATENESS), WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    assert [run((first, other)[number % 2], store, number) for number in range(6)] == [0, 1, 2, 3, 4, 5]
    assert (first.rebuilds, other.rebuilds) == (0, 0)


def test_another_process_that_grew_the_arrays_is_followed(tmp_path):
    first, other, store = WorkingCopy(tmp_path, LATENESS), WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(first, store, 0)
    run(other, store, 1, cards=20_000)
    assert run(first, store, 2, cards=20_000) == 2
    assert first.rebuilds == 0
    assert other.rebuilds == 0


def test_copy_from_before_the_machine_crashed_is_rebuilt(tmp_path, monkeypatch):
    """Pages written back before the crash may belong to different batches, whatever the token says."""
    store = MemoryPieces()
    run(WorkingCopy(tmp_path, LATENESS), store, 0)
    monkeypatch.setattr(working_copy, "_boot", lambda: "the next one")
    after = WorkingCopy(tmp_path, LATENESS)
    assert run(after, store, 1) == 1
    assert after.rebuilds == 1
    assert run(WorkingCopy(tmp_path, LATENESS), store, 2) == 2


def test_workers_whose_files_were_deleted_agree_on_new_ones(tmp_path):
    first, other, store = WorkingCopy(tmp_path, LATENESS), WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(first, store, 0)
    run(other, store, 1)
    shutil.rmtree(tmp_path)
    # in turns: `other` finds a file that `first` has created, as large as the deleted one that `other` maps
    assert [run((first, other)[number % 2], store, number) for number in range(2, 6)] == [2, 3, 4, 5]
    assert (first.rebuilds, other.rebuilds) == (1, 0)


def test_copy_of_another_token_is_rebuilt(tmp_path):
    """Another executor ran a batch in between: this machine's copy is one batch behind."""
    here, there = WorkingCopy(tmp_path / "here", LATENESS), WorkingCopy(tmp_path / "there", LATENESS)
    store = MemoryPieces()
    run(here, store, 0)
    run(there, store, 1)
    assert there.rebuilds == 1
    assert run(here, store, 2) == 2
    assert here.rebuilds == 1


def test_batch_that_spark_runs_again_starts_from_the_state_before(tmp_path):
    """The copy is ahead of the store: its last batch was never committed."""
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    before = MemoryPieces(store)
    run(copy, store, 1)
    assert run(copy, before, 1) == 1
    assert copy.rebuilds == 1


@pytest.mark.parametrize("after_commit", [False, True])
def test_exception_in_mid_batch_leads_to_a_rebuild(tmp_path, after_commit):
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    uncommitted, meta = MemoryPieces(store), load_meta(store)
    batch(copy.take(meta, uncommitted), meta, uncommitted, 1)
    copy.release(None)  # as after an exception
    # Spark may have kept the changes or not; the copy is not used in either case
    assert run(copy, uncommitted if after_commit else store, 2) == (2 if after_commit else 1)
    assert copy.rebuilds == 1


def test_lost_files_are_rebuilt(tmp_path):
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    for name in ("events", "cards"):
        (tmp_path / "arrays" / name).unlink()
    (tmp_path / "token").write_bytes(b"")
    assert run(WorkingCopy(tmp_path, LATENESS), store, 1) == 1


def test_lost_array_under_a_good_token_is_rebuilt(tmp_path):
    """A cleaner of temporary files deleted one array; the token is still there."""
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    (tmp_path / "arrays" / "events").unlink()
    for again in (copy, WorkingCopy(tmp_path, LATENESS)):
        retry = MemoryPieces(store)
        assert run(again, retry, 1) == 1


def test_fresh_job_does_not_trust_an_old_copy(tmp_path):
    """The checkpoint was deleted, the local copy was not."""
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    assert run(WorkingCopy(tmp_path, LATENESS), MemoryPieces(), 0) == 0


def test_a_damaged_store_remains_an_error(tmp_path):
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    run(copy, store, 1)
    damaged = MemoryPieces(store)
    name = max(damaged)
    damaged[name] = damaged[name][:-1]
    for _ in range(2):
        with pytest.raises(StateDamagedError):
            run(WorkingCopy(tmp_path / "elsewhere", LATENESS), damaged, 2)
    assert run(copy, store, 2) == 2


def test_copy_is_locked_while_it_is_used(tmp_path):
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    with (tmp_path / "lock").open() as other:
        copy.take(load_meta(store), store)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        copy.release(None)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _hold(directory, holding, release):
    store, copy = MemoryPieces(), WorkingCopy(directory, LATENESS)
    copy.take(load_meta(store), store)
    holding.set()
    release.wait(DEADLINE_S)
    copy.release(None)


def test_a_running_worker_of_an_old_job_is_awaited_and_a_killed_one_is_not(tmp_path):
    processes = multiprocessing.get_context("spawn")
    for kill in (False, True):
        holding, release = processes.Event(), processes.Event()
        worker = processes.Process(target=_hold, args=(tmp_path, holding, release))
        worker.start()
        try:
            assert holding.wait(DEADLINE_S)
            result: list[float] = []
            copy = WorkingCopy(tmp_path, LATENESS)
            waiting = threading.Thread(target=lambda: result.append(run(copy, MemoryPieces(), 0)))  # noqa: B023
            waiting.start()
            waiting.join(0.1)
            assert waiting.is_alive()
            assert result == []
            if kill:
                worker.kill()
            else:
                release.set()
            waiting.join(DEADLINE_S)
            assert result == [0.0]
        finally:
            worker.kill()
            worker.join(DEADLINE_S)


def test_a_copy_that_stays_in_use_is_replaced_by_a_state_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(working_copy, "BUSY_S", 0.1)
    store = MemoryPieces()
    orphan, copy = WorkingCopy(tmp_path, LATENESS), WorkingCopy(tmp_path, LATENESS)
    run(orphan, store, 0)
    held = orphan.take(load_meta(store), store)
    assert run(copy, store, 1) == 1
    assert copy.rebuilds == 1
    batch(held, load_meta(store), MemoryPieces(store), 1)  # the orphan still decides
    orphan.release(None)
    assert run(copy, store, 2) == 2
    assert copy.rebuilds == 2  # the orphan's copy is not the state


def test_files_deleted_while_they_are_in_use_are_not_continued_with_empty_ones(tmp_path):
    copy, store = WorkingCopy(tmp_path, LATENESS), MemoryPieces()
    run(copy, store, 0)
    meta = load_meta(store)
    state = copy.take(meta, store)
    shutil.rmtree(tmp_path / "arrays")
    (tmp_path / "arrays").mkdir()
    with pytest.raises(ArenaReplacedError, match="is rebuilt"):
        batch(state, meta, MemoryPieces(store), 1, cards=20_000)
    (tmp_path / "arrays").rmdir() if not any((tmp_path / "arrays").iterdir()) else None
    with pytest.raises(ArenaReplacedError, match="is rebuilt"):
        _ = state.arena.nbytes
    copy.release(None)
    assert run(copy, store, 1) == 1
    assert copy.rebuilds == 1


def test_a_file_arena_holds_the_same_as_a_memory_arena(tmp_path):
    stores = [MemoryPieces(), MemoryPieces()]
    states = [GroupState(FileArena(tmp_path)), GroupState(MemoryArena())]
    metas = [Meta(), Meta()]
    for number in range(20):
        for state, meta, store in zip(states, metas, stores, strict=True):
            batch(state, meta, store, number, cards=100 * (number + 1))
    for name, file in states[0].arena.arrays.items():
        memory = states[1].arena.arrays[name]
        both = min(file.size, memory.size)  # files grow in larger steps
        assert file[:both].tobytes() == memory[:both].tobytes(), name
        assert not file[both:].view(np.uint8).any(), name
        assert not memory[both:].view(np.uint8).any(), name
