"""The model of capacity against measured points, and its behaviour beyond them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples
from typer.testing import CliRunner

from deploy import cli
from deploy.capacity import US_PER_TRANSACTION, UTILISATION, cores, need, walls

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("rate", "measured"),
    [(2_000, 0.60), (20_000, 0.63)],  # docs/measurements.md, two key groups
)
def test_cores_agree_with_those_measured(rate: int, measured: float) -> None:
    assert cores(rate, 2) == pytest.approx(measured, rel=0.1)


def test_two_busy_cores_work_a_backlog_off_as_fast_as_measured() -> None:
    """Without alerts to wait for, a mini-batch is large, and only the time of each transaction counts."""
    assert pytest.approx(500_000, rel=0.2) == 2e6 / US_PER_TRANSACTION  # measured: 411,000 to 588,000


@examples(100)
@given(st.floats(1, 1e8), st.floats(1, 1e9))
def test_no_group_is_busier_than_planned_and_more_load_never_needs_less(rate: float, cards: float) -> None:
    needed, more = need(rate, cards), need(2 * rate, 2 * cards)
    assert needed.cores / needed.groups <= UTILISATION + 1e-9
    assert needed.partitions % needed.groups == 0
    for name, value in vars(needed).items():
        if name != "executor_memory":  # more groups share the cards
            assert vars(more)[name] >= value, name


def test_limits_are_named_in_the_order_in_which_they_are_met() -> None:
    small, large = walls(need(10_000, 1e6)), walls(need(50_000_000, 1e9))
    assert all(wall.reached < 1 for wall in small)
    assert large[0].reached > 1
    for found in (small, large):
        assert [wall.reached for wall in found] == sorted((wall.reached for wall in found), reverse=True)


def test_the_command_prints_needs_and_limits() -> None:
    done = CliRunner().invoke(cli.app, ["capacity", "--rate", "100000", "--cards", "10000000"])
    assert done.exit_code == 0, done.output
    assert "partitions of `transactions`" in done.output
    assert "every group reads all profiles" in done.output
