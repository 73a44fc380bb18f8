"""Changes reach the state store in their order, never beyond a cut, and within bounds of bytes and time."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from feature_store.state.journal import MemoryPieces
from streaming_job.group.staging import Change, Cut, Staging

pytestmark = pytest.mark.unit

MOST = 100


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def staging(clock: Clock | None = None) -> Staging:
    return Staging(MOST, alone_s=30.0, clock=clock or Clock())


def cut(token: str) -> Cut:
    return Cut(token, {("tx", 0): 7}, {"commits": 1})


def test_changes_are_taken_in_their_order_and_only_up_to_a_cut():
    stage, pieces = staging(), MemoryPieces(d1=b"old")
    stage.put("d2", b"new")
    stage.remove("d1")
    stage.cut(cut("one"))
    stage.put("d2", b"of the next epoch")
    changes, first = stage.take(0.0)
    for change in changes:
        change.apply(pieces)
    assert pieces == {"d2": b"new"}
    assert first == cut("one")
    assert stage.take(0.0) == ([Change("d2", b"of the next epoch")], None)
    assert stage.take(0.0) == ([], None)


def test_an_epoch_with_many_changes_wants_its_end_even_if_all_are_taken():
    stage = staging()
    for _ in range(3):
        stage.put("d", bytes(40))
        stage.take(0.0)
    assert stage.wants_end
    stage.cut(cut("one"))
    assert not stage.wants_end


def test_twice_as_many_untaken_bytes_leave_no_room_until_they_are_taken():
    stage = staging()
    for number in range(5):
        assert not stage.is_full
        stage.put(f"d{number}", bytes(41))
    assert stage.is_full
    stage.cut(cut("one"))
    assert stage.is_full
    stage.take(0.0)
    assert not stage.is_full


def test_without_a_task_the_loop_is_abandoned_after_a_while():
    clock = Clock()
    stage = staging(clock)
    clock.now = 30.0
    assert not stage.is_abandoned
    clock.now = 31.0
    assert stage.is_abandoned
    stage.take(0.0)
    assert not stage.is_abandoned


def test_a_request_for_a_cut_is_answered_by_the_next_cut():
    stage = staging()
    assert stage.wanted_cut is None
    stage.want_cut(last=False)
    assert stage.wanted_cut is False
    stage.cut(cut("one"))
    assert stage.wanted_cut is None
    stage.want_cut(last=True)
    assert stage.wanted_cut is True


@pytest.mark.parametrize("before", [True, False])
def test_a_full_staging_does_not_hold_up_a_cut(before: bool):
    stage = staging()
    stage.put("d1", bytes(201))
    assert stage.is_full
    thread = threading.Thread(target=stage.wait, args=(60.0,))
    if before:
        stage.want_cut(last=False)
        thread.start()
    else:
        thread.start()
        time.sleep(0.05)
        stage.want_cut(last=False)
    thread.join(10.0)
    assert not thread.is_alive()


def test_the_loops_fault_follows_what_it_had_staged():
    stage = staging()
    stage.put("d1", b"x")
    stage.cut(cut("one"))
    stage.fail(OSError("no space"))
    assert stage.take(0.0) == ([Change("d1", b"x")], cut("one"))
    with pytest.raises(OSError, match="no space"):
        stage.take(0.0)


@pytest.mark.parametrize(
    "wake",
    [
        lambda stage: stage.put("d1", b"x"),
        lambda stage: stage.cut(cut("one")),
        lambda stage: stage.fail(OSError()),
    ],
)
def test_a_waiting_task_is_woken(wake: Callable[[Staging], None]):
    stage, taken = staging(), []

    def task() -> None:
        with suppress(OSError):
            stage.take(60.0)
        taken.append(True)

    thread = threading.Thread(target=task)
    thread.start()
    wake(stage)
    thread.join(30.0)
    assert taken


def test_a_waiting_loop_is_woken_when_its_changes_are_taken():
    stage = staging()
    stage.put("d1", bytes(201))
    thread = threading.Thread(target=stage.wait, args=(60.0,))
    thread.start()
    stage.take(0.0)
    thread.join(30.0)
    assert not thread.is_alive()
