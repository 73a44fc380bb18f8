"""Rounded values are the float64 nearest to a decimal number of nine places."""

import math
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.jit import njit
from models.rounding import DECIMALS, rounded

pytestmark = pytest.mark.unit

STEP = Decimal(1).scaleb(-DECIMALS)
VALUES = st.one_of(
    st.floats(0, 1),
    st.floats(-40, 40),
    # next to half a step, where a result is hardest to tell
    st.integers(0, 40 * 10**DECIMALS).map(lambda steps: (steps + 0.5) / 10**DECIMALS),
)
compiled = njit(rounded)


@examples(500)
@given(VALUES)
def test_a_value_becomes_the_float_nearest_to_its_decimal(value: float) -> None:
    result, exact = float(rounded(value)), Decimal(value)
    decimal = exact.quantize(STEP, ROUND_HALF_EVEN)
    if result != float(decimal):
        # only where the value is within its last bit of half a step may the other neighbour be taken
        assert abs(abs(exact - decimal) - STEP / 2) <= Decimal(math.ulp(value))
        assert result == float(decimal + STEP.copy_sign(exact - decimal))


@examples(500)
@given(VALUES)
def test_rounding_again_changes_nothing_and_python_agrees(value: float) -> None:
    result = float(rounded(value))
    assert rounded(result) == result == round(result, DECIMALS)


@examples(100)
@given(st.lists(VALUES, min_size=1, max_size=40))
def test_arrays_numbers_and_kernels_are_rounded_alike(values: list[float]) -> None:
    expected = [float(rounded(value)) for value in values]
    assert rounded(np.array(values)).tolist() == expected
    assert [compiled(value) for value in values] == expected


def test_what_is_not_a_number_stays_so() -> None:
    assert np.isnan(rounded(np.array([np.nan])))
