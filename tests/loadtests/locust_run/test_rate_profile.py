from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.locust_run.errors import LoadTestError
from loadtests.locust_run.rate_profile import SHAPES, Piece, RateProfile, profile

pytestmark = pytest.mark.unit
pieces = st.lists(
    st.builds(Piece, st.floats(0.1, 10), st.floats(0.5, 50), st.floats(0.5, 50)), min_size=1, max_size=4
)


def cumulated(parts: list[Piece], second: float) -> float:
    """Integral of the rate up to a time, summed over the pieces: the naive oracle."""
    total = 0.0
    for piece in parts:
        into = min(second, piece.seconds)
        rate_there = piece.first + (piece.last - piece.first) * into / piece.seconds
        total += into * (piece.first + rate_there) / 2
        second -= into
        if second <= 0:
            break
    return total


@settings(deadline=None)
@given(pieces)
def test_an_event_is_due_when_as_many_and_a_half_are_cumulated(parts: list[Piece]) -> None:
    rate_profile = RateProfile(parts)
    numbers = np.arange(rate_profile.events)
    due = rate_profile.due_us(numbers) / 1e6
    highest = rate_profile.peak
    for number, at in zip(numbers.tolist(), due.tolist(), strict=True):
        wanted = min(number + 0.5, cumulated(parts, rate_profile.seconds))
        assert cumulated(parts, at) == pytest.approx(wanted, abs=highest * 2e-6 + 1e-6)
    assert all(before <= after for before, after in pairwise(due.tolist()))
    assert not due.size or (due[0] >= 0 and due[-1] <= rate_profile.seconds + 1e-6)


@settings(deadline=None)
@given(pieces, st.floats(0, 1))
def test_events_due_by_a_time_are_those_with_an_earlier_time(parts: list[Piece], share: float) -> None:
    rate_profile = RateProfile(parts)
    second = share * rate_profile.seconds
    due = rate_profile.due_us(np.arange(rate_profile.events)) / 1e6
    # times are rounded to microseconds
    early, late = (int((due < second + shift).sum()) for shift in (-2e-6, 2e-6))
    assert early <= rate_profile.due_by(second) <= late


@settings(deadline=None)
@given(pieces, st.integers(1, 7))
def test_lanes_share_the_schedule_without_gap_or_overlap(parts: list[Piece], lanes: int) -> None:
    rate_profile = RateProfile(parts)
    shares = [rate_profile.due_us(np.arange(lane, rate_profile.events, lanes)) for lane in range(lanes)]
    assert (
        sorted(np.concatenate(shares).tolist())
        == rate_profile.due_us(np.arange(rate_profile.events)).tolist()
    )


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "replay"])
def test_shapes_have_their_length_and_begin_with_a_warm_up(shape: str) -> None:
    rate_profile = profile(shape, 100.0, 50.0, warm_up_s=5.0, factor=4.0)
    assert rate_profile.seconds == pytest.approx(55.0)
    assert rate_profile.rate_at(0) == pytest.approx(10.0)
    assert rate_profile.peak == (400.0 if shape == "spike" else 100.0)
    assert rate_profile.rate_at(-1) == rate_profile.rate_at(56) == 0


def test_a_spike_stands_in_the_middle() -> None:
    rate_profile = profile("spike", 100.0, 50.0, factor=4.0)
    assert [rate_profile.rate_at(at) for at in (10, 25, 40)] == [100, 400, 100]


@pytest.mark.parametrize(("shape", "rate"), [("flood", 10.0), ("steady", 0.0), ("steady", -1.0)])
def test_impossible_profiles_are_refused(shape: str, rate: float) -> None:
    with pytest.raises(LoadTestError, match="give"):
        profile(shape, rate, 10.0)
