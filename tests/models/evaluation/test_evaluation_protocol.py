"""The split in time equals that of the Fraud Detection Handbook, row by row."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from models.errors import ModelError
from models.evaluation.protocol import Windows, split

pytestmark = pytest.mark.unit

START = date(1970, 1, 11)
"""Day 10 after 1970-01-01."""


def handbooks(
    day: np.ndarray, card: np.ndarray, fraud: np.ndarray, first: int, train: int, delay: int, test: int
) -> tuple[list[int], list[int]]:
    """The handbook's `get_train_test_set` (chapter 5), in plain loops over row numbers."""
    rows = range(len(day))
    in_train = [row for row in rows if first <= day[row] < first + train]
    known = {card[row] for row in in_train if fraud[row]}
    in_test: list[int] = []
    for number in range(test):
        delayed = first + train + number - 1
        known |= {card[row] for row in rows if day[row] == delayed and fraud[row]}
        tested = first + train + delay + number
        in_test += [row for row in rows if day[row] == tested and card[row] not in known]
    return in_train, in_test


@examples(60)
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(0, 4), st.integers(1, 4))
def test_the_split_equals_the_handbooks(seed, train, delay, test):
    rng = np.random.default_rng(seed)
    end = 10 + train + delay + test
    # every day has a transaction; card 0 never has a fraud
    day = np.sort(np.concatenate([np.arange(8, end + 2), rng.integers(8, end + 2, 60)]))
    card = np.where(rng.random(day.size) < 0.3, 0, rng.integers(0, 12, day.size))
    fraud = (rng.random(day.size) < 0.25) & (card > 0)
    wanted_train, wanted_test = handbooks(day, card, fraud, 10, train, delay, test)
    if not wanted_test:
        return
    fold = split(Windows(START, train, delay, test), day, card, fraud)
    assert (fold.train.tolist(), fold.test.tolist()) == (wanted_train, wanted_test)


def test_each_fold_lies_seven_days_later():
    moved = Windows(date(2018, 6, 20)).fold(3)
    assert (moved.train_start, moved.test_start) == (date(2018, 7, 11), date(2018, 7, 25))
    assert moved.end_day - moved.first_day == 21


@pytest.mark.parametrize("days", [range(12, 40), range(5, 30), range(50, 60)])
def test_a_history_that_is_too_short_is_refused(days):
    day = np.array(days)
    nothing = np.zeros(day.size, np.int64)
    with pytest.raises(ModelError, match="move --train-start"):
        split(Windows(START), day, nothing, nothing.astype(np.bool_))
