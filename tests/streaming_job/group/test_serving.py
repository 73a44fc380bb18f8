"""The loop outlives its tasks: what they save ends at a cut, and each way to end the loop ends it."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from feature_store.state.journal import MemoryPieces, Meta, PieceSink
from streaming_job.group import serving
from streaming_job.group.serving import Serving
from streaming_job.log.records import Offsets
from streaming_job.runtime import pauses
from streaming_job.runtime.epochs import EpochError

pytestmark = pytest.mark.unit

WaitFor = Callable[..., object]
TX = ("tx", 0)


class Watch:
    """Collects the phases of a loop."""

    def __init__(self) -> None:
        self.laps: list[str] = []

    def lap(self, phase: str) -> None:
        self.laps.append(phase)


class Counter:
    """A loop whose state is the number of its turns: each turn stages the number."""

    def __init__(self, meta: Meta, size: int) -> None:
        self.turns, self._meta, self._size = 0, meta, size
        self.core = self
        self.watch = Watch()
        self.fault: Exception | None = None
        self.is_done = False
        self.gate = threading.Event()
        self.gate.set()

    def advance(self, sink: PieceSink) -> None:
        assert self.gate.wait(30.0)
        if self.fault is not None:
            raise self.fault
        pauses.look()
        self.turns += 1
        sink.put("turns", self.turns.to_bytes(self._size))
        time.sleep(0.001)

    def cut(self, sink: PieceSink) -> Offsets:
        self._meta.token = f"token {self.turns}"
        sink.put("meta", self._meta.token.encode())
        return {TX: self.turns}


class Opened:
    """An opened group, and its committer."""

    def __init__(self, size: int = 8) -> None:
        self.meta = Meta(token="token 0")
        self.follower: Any = Counter(self.meta, size)
        self.committer: Any = self
        self.summary: dict[str, int] = {}
        self.epoch = self.cuts = 0
        self.is_closed = False

    def begin(self) -> None:
        self.cuts += 1
        self.summary = {"cut": self.cuts}

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class Driver:
    """The driver, as loop and task see it."""

    def __init__(self) -> None:
        self.stops = self.gone = self.is_closed = False
        self.over = True
        self.asked = self.asked_of_all = 0
        self.number = 5

    def must_stop(self) -> bool:
        return self.stops or self.gone

    def is_gone(self) -> bool:
        return self.gone

    def is_over(self) -> bool:
        return self.over or self.must_stop()

    @property
    def is_last(self) -> bool:
        return self.must_stop()

    def ask_for_end(self, *, of_all: bool = False) -> None:
        self.asked += not of_all
        self.asked_of_all += of_all
        self.over = True

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def served(opened: Opened, driver: Driver) -> Iterator[Serving]:
    result = Serving(0, opened, driver, epoch=5, most_bytes=1 << 30)
    yield result
    result.give_up()
    opened.follower.gate.set()
    result._thread.join(30.0)
    assert not result._thread.is_alive()
    assert driver.is_closed


def test_the_loop_goes_on_between_epochs_and_each_epoch_ends_at_its_cut(
    served: Serving, opened: Opened, driver: Driver, wait_for: WaitFor
) -> None:
    pieces, before = MemoryPieces(), 0
    assert served.token == "token 0"
    for driver.number in range(5, 9):
        cut = served.save(driver, pieces)
        turns = cut.positions[TX]
        assert turns >= before
        assert not cut.is_last
        assert served.token == cut.token == f"token {turns}" == pieces["meta"].decode()
        # nothing that the loop did after the cut is in the store
        assert int.from_bytes(pieces.get("turns") or b"") == turns
        assert cut.summary == {"cut": driver.number - 4}
        assert opened.epoch == driver.number  # not yet the next one, which Spark may never begin
        wait_for(lambda: opened.follower.turns > turns, what="turns without a task")  # noqa: B023
        before = turns


def test_a_stop_makes_the_last_cut_and_ends_the_loop(served: Serving, opened: Opened, driver: Driver) -> None:
    pieces = MemoryPieces()
    driver.stops = True
    cut = served.save(driver, pieces)
    assert cut.is_last
    assert served.join() is opened.meta
    assert opened.is_closed
    assert opened.follower.turns == cut.positions[TX]  # so the working copy is the state that was saved


def test_a_loop_without_a_driver_ends_although_no_task_comes(
    served: Serving, driver: Driver, wait_for: WaitFor
) -> None:
    driver.gone = True
    wait_for(lambda: not served._thread.is_alive())
    with pytest.raises(EpochError, match="driver is gone"):
        served.save(driver, MemoryPieces())


def test_the_task_raises_the_fault_of_the_loop(served: Serving, opened: Opened, driver: Driver) -> None:
    driver.over = False
    opened.follower.fault = OSError("fenced")
    with pytest.raises(OSError, match="fenced"):
        served.save(driver, MemoryPieces())


def test_a_loop_that_is_ended_closes_its_group_and_makes_no_cut(served: Serving, opened: Opened) -> None:
    served.end()
    assert opened.is_closed
    assert opened.meta.token == "token 0"


def test_a_loop_that_is_ended_gives_up_its_waits(
    served: Serving, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened.follower, "advance", lambda sink: pauses.pause(600.0))
    begun = time.monotonic()
    served.end()
    assert time.monotonic() - begun < 60.0


def test_a_loop_waits_while_no_task_takes_its_changes(driver: Driver, wait_for: WaitFor) -> None:
    opened = Opened(size=1_000)
    served = Serving(0, opened, driver, epoch=0, most_bytes=10_000)
    try:
        wait_for(lambda: "wait" in opened.follower.watch.laps)
        turns = opened.follower.turns
        assert turns == 21  # the first that leaves more than twice the bytes untaken
        time.sleep(0.05)
        assert opened.follower.turns == turns
        cut = served.save(driver, MemoryPieces())
        assert cut.positions[TX] >= turns
        wait_for(lambda: opened.follower.turns > turns)
    finally:
        served.end()


def test_a_loop_ends_when_no_task_comes_any_more(
    driver: Driver, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ALONE_S", 0.3)
    served = Serving(0, Opened(), driver, epoch=0, most_bytes=1 << 30)
    assert served.is_alive
    wait_for(lambda: not served.is_alive)
    with pytest.raises(EpochError, match="no task"):
        served.save(driver, MemoryPieces())


def test_an_epoch_with_many_changes_asks_the_driver_for_its_end(driver: Driver) -> None:
    driver.over = False
    opened = Opened(size=1_000)
    served = Serving(0, opened, driver, epoch=0, most_bytes=10_000)
    try:
        cut = served.save(driver, MemoryPieces())
        assert driver.asked
        assert cut.positions[TX] > 10
    finally:
        served.end()


def test_a_loop_that_has_done_all_asks_for_the_end_once_all_have(
    served: Serving, opened: Opened, driver: Driver
) -> None:
    driver.over, opened.follower.is_done = False, True
    served.save(driver, MemoryPieces())
    assert driver.asked_of_all
    assert not driver.asked


class Full(MemoryPieces):
    """A store that takes some changes, and no more."""

    def put(self, name: str, blob: bytes) -> None:
        if self:
            raise OSError("no space")
        super().put(name, blob)


def test_after_a_failed_task_no_other_one_goes_on_where_it_stopped(served: Serving, driver: Driver) -> None:
    with pytest.raises(OSError, match="no space"):
        served.save(driver, Full())
    assert not served.token  # the state store has another one, so the group is opened anew
    served.give_up()
    with pytest.raises(EpochError, match="has failed"):
        served.save(driver, MemoryPieces())
