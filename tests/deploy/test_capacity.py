"""The model of capacity against measured points, and its behaviour beyond them."""

import re
from pathlib import Path

import pytest
from harness.manifests import HOME, read
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples
from typer.testing import CliRunner

from deploy import cli
from deploy.capacity import (
    GROUP_BYTES,
    PAGES_PER_CARD,
    US_PER_TRANSACTION,
    UTILISATION,
    cores,
    first_load_s,
    need,
    walls,
)

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("rate", "measured"),
    [(2_000, 0.60), (20_000, 0.63)],  # docs/measurements.md, two key groups
)
def test_cores_agree_with_those_measured(rate: int, measured: float) -> None:
    assert cores(rate, 2) == pytest.approx(measured, rel=0.1)


def test_two_busy_cores_work_a_backlog_off_as_fast_as_measured() -> None:
    """Without alerts to wait for, a mini-batch is large, and only the time of each transaction counts."""
    assert pytest.approx(500_000, rel=0.2) == 2e6 / US_PER_TRANSACTION  # measured: 411,000 to 588,000


def test_a_first_load_takes_as_long_as_measured_and_is_shared_by_the_groups() -> None:
    measured = first_load_s(1e6, 2, 3)
    assert 0.8 * 48 < measured < 48  # docs/measurements.md: 48 s with the start
    assert first_load_s(1e6, 4, 3) == pytest.approx(measured / 2, rel=0.1)
    # every group reads all profiles: so many groups wait for the brokers, and further ones make it slower
    assert first_load_s(1e6, 200, 3) > first_load_s(1e6, 100, 3)


def test_the_memory_of_one_pod_holds_the_cards_that_the_documentation_says() -> None:
    (job,) = read(HOME / "job" / "statefulset.yaml")
    limit = job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    free = (int(limit.removesuffix("Gi")) << 30) - 2 * GROUP_BYTES - (640 << 20)
    text = (ROOT / "docs" / "deployment.md").read_text()
    (cards,) = re.findall(r"working copies of about ([\d,]+) cards", text)
    assert int(cards.replace(",", "")) == pytest.approx(free / PAGES_PER_CARD, rel=0.1)


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
