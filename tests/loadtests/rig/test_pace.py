"""Without a broker: when the records of a tape are due."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from loadtests.rig import pace as pacing
from loadtests.rig.pace import CHUNK, Pace, SteadyClock, paced

pytestmark = pytest.mark.unit
FOREVER: Callable[[], bool] = lambda: True  # noqa: E731


class Times(NamedTuple):
    """Records of which only the times matter."""

    at: np.ndarray

    def __len__(self) -> int:
        return len(self.at)


class HandClock:
    """A clock that advances only while a caller waits."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self.now = now_ms
        self.waits: list[float] = []

    def now_ms(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds * 1_000


def sent(times: list[float], pace: Pace, clock: HandClock) -> list[tuple[float, float]]:
    """(real time at which it left, time on the tape) of each record."""
    parts = [Times(np.array(times))]
    return [
        (clock.now, float(at)) for part, start, end in paced(parts, pace, clock, FOREVER)
        for at in part.at[start:end]
    ]  # fmt: skip


def test_records_leave_when_they_are_due_and_at_most_a_tick_later() -> None:
    clock = HandClock(1_000_000.0)
    tape = [0, 1, 4, 4.2, 4.9, 100, 101, 5_000]
    left = sent(tape, Pace(1_000_000.0, 0.0), clock)
    assert [at for _, at in left] == tape
    assert all(at <= when - 1_000_000 <= at + 1_000 * pacing.TICK_S + 1e-6 for when, at in left)
    # a long pause is made of short waits, so that a stop is noticed
    assert max(clock.waits) <= pacing.IDLE_S


def test_a_steady_load_does_not_come_in_clumps() -> None:
    left = sent([number / 2 for number in range(4_000)], Pace(0.0, 0.0), HandClock())
    _, at_the_same_time = np.unique([when for when, _ in left], return_counts=True)
    assert at_the_same_time.max() <= 3  # two a millisecond: 2,000 a second


def test_ten_times_the_speed_takes_a_tenth_of_the_time() -> None:
    clock = HandClock()
    assert len(sent(list(range(0, 60_001, 10)), Pace(0, 0, 10.0), clock)) == 6_001
    assert clock.now == pytest.approx(6_000, abs=10)


def test_at_full_speed_no_record_waits() -> None:
    clock = HandClock()
    assert len(sent(list(range(0, 10**9, 10**5)), Pace.at_once(), clock)) == 10**4
    assert clock.waits == []


def test_an_end_in_time_stops_before_the_records_do() -> None:
    clock, tape = HandClock(), Times(np.arange(0, 100_000, 100))
    ranges = paced([tape], Pace.live(), clock, lambda: clock.now < 5_000)
    last = max(int(tape.at[end - 1]) for _, start, end in ranges if end > start)
    assert 4_800 <= last <= 5_000
    assert list(paced([tape], Pace.live(), clock, lambda: False)) == []


def test_what_is_late_leaves_at_once_but_the_clock_is_read_again_in_between() -> None:
    ranges = list(paced([Times(np.zeros(1_000))], Pace.live(), HandClock(10_000.0), FOREVER))
    assert [end - start for _, start, end in ranges] == [CHUNK, CHUNK, CHUNK, 1_000 - 3 * CHUNK]


def test_due_times_are_the_tapes_times_at_its_speed() -> None:
    pace = Pace(wall_ms=1_000.0, tape_ms=500.0, speed=2.0)
    assert pace.due_ms(np.array([500, 700])).tolist() == [1_000.0, 1_100.0]
    assert pace.reached_ms(1_100.0) == 700.0
    assert (pace.seconds_until(700.0, 1_000.0), pace.seconds_until(700.0, 2_000.0)) == (0.1, 0.0)


def test_a_jump_of_the_systems_clock_does_not_move_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    before = clock.now_ms()
    monkeypatch.setattr(pacing.time, "time_ns", lambda: 0)
    assert 0 <= clock.now_ms() - before < 60_000
