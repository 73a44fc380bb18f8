"""The bet: exact wealth, a supermartingale, few false breaches over all looks, a quick stop of bad models."""

import math
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import law, most_by_chance, paths
from thoroughness import THOROUGH, examples

from models.guards.betting import STAKES, log_target, log_wealth, stakes
from models.guards.counts import PairedCounts, Pairs
from models.guards.findings import GuardOutcome
from models.guards.policy import Guards
from models.guards.rules import AlertRate
from models.guards.verdict import verdict

pytestmark = pytest.mark.unit

ALPHA = 0.01
RATIOS = st.sampled_from([0.001, 0.02, 0.5, 1.0, 1.5, 2.0, 50.0, 1000.0])
Unit = tuple[int, int]
"""(x, y): 1 if the model under test alerted, else 0; the same for the other model."""


def naive(units: list[Unit], ratio: float) -> Fraction:
    """The wealth in exact arithmetic: for each stake the product over the units; of these, the mean."""
    total = Fraction(0)
    for stake in stakes(ratio).tolist():
        wealth = Fraction(1)
        for x, y in units:
            wealth *= 1 + Fraction(stake) * (x - Fraction(ratio) * y)
        total += wealth
    return total / STAKES


def log(number: Fraction) -> float:
    """Natural logarithm of an exact fraction, also beyond float64."""
    return math.log(number.numerator) - math.log(number.denominator)


@examples(30, 2_000)
@given(st.lists(st.sampled_from([(1, 0), (0, 1), (1, 1), (0, 0)]), max_size=60), RATIOS, st.randoms())
def test_wealth_is_the_product_over_units_in_any_order(
    units: list[Unit], ratio: float, order: random.Random
) -> None:
    mixed = list(units)
    order.shuffle(mixed)
    counts = (units.count((1, 0)), units.count((0, 1)), units.count((1, 1)))
    assert log_wealth(*counts, ratio) == pytest.approx(log(naive(mixed, ratio)), abs=1e-8)


@examples(30, 2_000)
@given(
    st.tuples(*[st.integers(0, 20)] * 4),
    RATIOS,
    st.lists(st.sampled_from([(1, 0), (0, 1), (1, 1)]), max_size=6),
)
def test_wealth_is_a_supermartingale_under_every_law_of_the_hypothesis(
    weights: tuple[int, int, int, int], ratio: float, past: list[Unit]
) -> None:
    units = list(product((0, 1), repeat=2))
    total = sum(weights) or 1
    chances = (
        [Fraction(weight, total) for weight in weights] if sum(weights) else [Fraction(1), *[Fraction(0)] * 3]
    )
    drift = sum(p * (x - Fraction(ratio) * y) for p, (x, y) in zip(chances, units, strict=True))
    if drift > 0:  # outside the hypothesis: (0, 0) gets the chance of (1, 0) and, if needed, that of (1, 1)
        x_alone = units.index((1, 0))
        chances[x_alone] = Fraction(0)
        drift = sum(p * (x - Fraction(ratio) * y) for p, (x, y) in zip(chances, units, strict=True))
        if drift > 0:
            chances[units.index((1, 1))] = Fraction(0)
        chances[0] += 1 - sum(chances)
    now = naive(past, ratio)
    assert now > 0
    assert sum(p * naive([*past, unit], ratio) for p, unit in zip(chances, units, strict=True)) <= now


@given(st.tuples(*[st.integers(0, 10**9)] * 3), RATIOS)
def test_the_logarithm_of_the_wealth_is_finite_for_any_counts(
    counts: tuple[int, int, int], ratio: float
) -> None:
    assert math.isfinite(log_wealth(*counts, ratio))


def test_one_unit_at_most_doubles_the_wealth() -> None:
    for ratio in (0.001, 1.0, 50.0):
        assert 0 < log_wealth(1, 0, 0, ratio) <= math.log(2)
    assert log_wealth(0, 0, 0, 1.5) == 0


@pytest.mark.parametrize("max_ratio", [1.0, 1.5])
@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.9])
def test_equal_models_are_rarely_stopped_with_a_look_after_every_card_hour(
    overlap: float, max_ratio: float
) -> None:
    both, champion, challenger = paths(law(overlap, 1.0), 1_000, 3_000 if THOROUGH else 400, seed=1)
    breached = (log_wealth(challenger, champion, both, max_ratio) >= log_target(ALPHA)).any(axis=1)
    assert breached.sum() <= most_by_chance(1_000, ALPHA)


@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.9])
def test_models_just_at_the_limit_are_neither_stopped_nor_passed(overlap: float) -> None:
    both, champion, challenger = paths(law(overlap, 1.5), 1_000, 3_000 if THOROUGH else 400, seed=2)
    for wealth in (
        log_wealth(challenger, champion, both, 1.5),
        log_wealth(champion, challenger, both, 1 / 1.5),
    ):
        assert (wealth >= log_target(ALPHA)).any(axis=1).sum() <= most_by_chance(1_000, ALPHA)


def first_looks(proved: np.ndarray) -> tuple[float, float]:
    """Median and 95th percentile of the first look with a proof; a pair without one counts as infinite."""
    first = np.where(proved.any(axis=1), proved.argmax(axis=1) + 1.0, np.inf)
    return float(np.quantile(first, 0.5, method="higher")), float(np.quantile(first, 0.95, method="higher"))


@pytest.mark.parametrize(("overlap", "median", "most"), [(1.0, 90, 210), (0.9, 115, 300), (0.5, 275, 700)])
def test_a_model_with_twice_the_alerts_is_stopped_within_the_documented_time(
    overlap: float, median: int, most: int
) -> None:
    both, champion, challenger = paths(law(overlap, 2.0), 1_000, 800, seed=3)
    proved = log_wealth(challenger, champion, both, 1.5) >= log_target(ALPHA)
    result = first_looks(proved)
    assert result[0] <= median
    assert result[1] <= most
    # the guard's verdict on the same counts becomes a breach at the first look with a proof
    at = int(proved[0].argmax())
    guards = Guards(ALPHA, rules=(AlertRate(max_ratio=1.5),))
    for look, outcome in ((at - 1, GuardOutcome.INSUFFICIENT), (at, GuardOutcome.BREACH)):
        hours = Pairs(int(both[0, look]), int(champion[0, look]), int(challenger[0, look]))
        assert verdict(PairedCounts(card_hours=hours), guards).outcome is outcome


@pytest.mark.parametrize(("overlap", "median", "most"), [(0.5, 65, 165), (0.9, 30, 45)])
def test_an_equal_model_passes_within_the_documented_time(overlap: float, median: int, most: int) -> None:
    both, champion, challenger = paths(law(overlap, 1.0), 1_000, 400, seed=4)
    result = first_looks(log_wealth(champion, challenger, both, 1 / 1.5) >= log_target(ALPHA))
    assert result[0] <= median
    assert result[1] <= most
