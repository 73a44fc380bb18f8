"""A start removes local files that no job uses any more, and only those."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from feature_store.state.group_state import GroupState
from feature_store.state.journal import MemoryPieces, Meta
from models import loading
from streaming_job.group.working_copy import WorkingCopy
from streaming_job.runtime.leftovers import UNFINISHED_S, UNUSED_S, remove

pytestmark = pytest.mark.unit

NOW = time.time()


def made(path: Path, unused_s: float) -> Path:
    """A directory with a file, last used some seconds before NOW."""
    path.mkdir(parents=True)
    (path / "content").write_bytes(b"x")
    os.utime(path, (NOW - unused_s, NOW - unused_s))
    return path


def used(working: WorkingCopy) -> GroupState:
    """Take a copy and release it; return its state."""
    state = working.take(Meta(), MemoryPieces())
    working.release(Meta())
    return state


def copy(work_dir: Path, job: str, layout: str, unused_s: float) -> Path:
    """The working copy of a key group after an epoch that ended some seconds before NOW."""
    directory = work_dir / "state" / job / layout / "0"
    used(WorkingCopy(directory, 1))
    os.utime(directory / "token", (NOW - unused_s, NOW - unused_s))
    return directory


def test_copies_of_other_jobs_and_layouts_are_removed_when_they_are_old(tmp_path: Path) -> None:
    other_layout = copy(tmp_path, "job", "old-layout", UNUSED_S + 1)
    other_job = copy(tmp_path, "other", "layout", UNUSED_S + 1)
    recent = copy(tmp_path, "third", "layout", UNUSED_S - 1)
    assert {*remove(tmp_path, None, NOW)} == {other_layout, other_job}
    assert not other_layout.parent.exists()
    assert (recent / "arrays").exists()
    assert remove(tmp_path, None, NOW) == []


def test_a_copy_that_a_process_holds_stays(tmp_path: Path) -> None:
    held = copy(tmp_path, "job", "layout", UNUSED_S + 1)
    lock = os.open(held / "lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert remove(tmp_path, None, NOW) == []
        assert (held / "arrays").exists()
    finally:
        os.close(lock)
    assert remove(tmp_path, None, NOW) == [held]


def test_a_process_whose_copy_was_removed_makes_a_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "job" / "layout" / "0"
    working = WorkingCopy(directory, 1)
    used(working)
    os.utime(directory / "token", (0, 0))
    assert remove(tmp_path, None, NOW) == [directory]
    assert used(working).numbers_given == 0
    assert (directory / "arrays").exists()


def test_models_are_removed_when_no_load_has_used_them_for_long(tmp_path: Path) -> None:
    models = tmp_path / "models"
    old, recent = made(models / ("a" * 64), UNUSED_S + 1), made(models / ("b" * 64), UNUSED_S - 1)
    used = made(models / ("c" * 64), UNUSED_S + 1)
    loading.mark_used(used)
    assert remove(tmp_path, None, NOW) == [old]
    assert (recent / "content").exists()
    assert (used / "content").exists()
    loading.mark_used(old)  # of a process that has it in memory


@pytest.mark.parametrize("name", [".copy-x1", ".damaged-x1"])
def test_what_a_killed_loader_leaves_is_removed_after_a_day(tmp_path: Path, name: str) -> None:
    killed = made(tmp_path / "models" / name, UNFINISHED_S + 1)
    running = made(tmp_path / "models" / f"{name}2", UNFINISHED_S - 1)
    assert remove(tmp_path, None, NOW) == [killed]
    assert (running / "content").exists()


def test_kernels_of_other_releases_are_removed_when_they_are_old(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    own, old = made(kernels / "own", UNUSED_S + 1), made(kernels / "old", UNUSED_S + 1)
    recent = made(kernels / "recent", UNUSED_S - 1)
    assert remove(tmp_path / "work", own, NOW) == [old]
    assert (own / "content").exists()
    assert (recent / "content").exists()
