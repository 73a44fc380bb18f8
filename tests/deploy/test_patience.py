"""The time limit of a loop that waits: its end, and what renews it."""

from collections.abc import Callable

import pytest

from deploy.local.waiting import Patience

pytestmark = pytest.mark.unit


class Clock:
    """A clock that only pauses advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def late() -> Exception:
    return TimeoutError("late")


def forever(patience: Patience, progress: Callable[[], object] = lambda: None) -> None:
    while True:
        patience.wait(late, progress())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patience(clock: Clock) -> Patience:
    """Ten seconds of patience, a look each second."""
    return Patience(10, 1, pause=clock.pause, clock=clock)


def test_a_wait_fails_once_its_limit_has_passed(clock: Clock, patience: Patience) -> None:
    with pytest.raises(TimeoutError, match="late"):
        forever(patience)
    assert clock.now == 11


def test_progress_renews_the_limit(clock: Clock, patience: Patience) -> None:
    with pytest.raises(TimeoutError, match="late"):
        forever(patience, lambda: min(clock.now // 9, 4))
    assert clock.now == 36 + 11


def test_a_pause_may_end_the_wait(patience: Patience) -> None:
    def stopped(seconds: float) -> None:
        raise InterruptedError(f"{seconds}")

    with pytest.raises(InterruptedError, match="3"):
        Patience(10, 3, pause=stopped).wait(late)
