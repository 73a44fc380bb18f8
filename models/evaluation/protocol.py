"""The handbook's split in time: a training window, the label delay, a test window, known cards removed.

Le Borgne et al., Reproducible Machine Learning for Credit Card Fraud Detection (2022), chapters 3 and 5.
Days are UTC days of arrival, numbered from 1970-01-01.
"""

from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from models.errors import ModelError

STEP_DAYS = 7
"""By how many days each fold lies after the one before it."""
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Windows:
    """Training days, the days whose labels are not known yet, and test days: one after the other."""

    train_start: date
    train_days: int = 7
    delay_days: int = 7
    test_days: int = 7

    def fold(self, number: int) -> "Windows":
        """The windows of fold 0, 1, ...: every date moved by STEP_DAYS for each."""
        return replace(self, train_start=self.train_start + timedelta(STEP_DAYS * number))

    @property
    def test_start(self) -> date:
        """First test day."""
        return self.train_start + timedelta(self.train_days + self.delay_days)

    @property
    def first_day(self) -> int:
        """Number of the first training day."""
        return (self.train_start - _EPOCH).days

    @property
    def first_test_day(self) -> int:
        """Number of the first test day."""
        return (self.test_start - _EPOCH).days

    @property
    def end_day(self) -> int:
        """Number of the day after the last test day."""
        return self.first_test_day + self.test_days


@dataclass(frozen=True)
class Fold:
    """Rows of one fold, ascending."""

    windows: Windows
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def split(
    windows: Windows, day: NDArray[np.int64], card: NDArray[np.int64], fraud: NDArray[np.bool_]
) -> Fold:
    """Rows to train on and rows to judge by.

    A card that had a fraud since the first training day is known as compromised once the delay has passed:
    on test day d all cards are dropped with a fraud on a day from the first training day to d - delay - 1.

    Args:
        windows: of the fold.
        day: number of each row's day, shape (n,).
        card: number of each row's card, shape (n,).
        fraud: shape (n,).

    Raises:
        ModelError: the history has no rows in one of the windows, or ends before the last test day.
    """
    in_train = (day >= windows.first_day) & (day < windows.first_day + windows.train_days)
    train = np.flatnonzero(in_train)
    if day.size and (day.min() > windows.first_day or day.max() < windows.end_day - 1):
        first, last = (_EPOCH + timedelta(int(number)) for number in (day.min(), day.max()))
        raise ModelError(
            f"training from {windows.train_start} on and testing need transactions up to "
            f"{_EPOCH + timedelta(windows.end_day - 1)}, but there are some from {first} to {last} only; "
            "move --train-start, or ask for fewer --folds"
        )
    known_from = np.full(int(card.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    since = fraud & (day >= windows.first_day)
    np.minimum.at(known_from, card[since], day[since] + windows.delay_days + 1)
    in_test = (day >= windows.first_test_day) & (day < windows.end_day)
    test = np.flatnonzero(in_test & (known_from[card] > day))
    if not train.size or not test.size:
        raise ModelError(
            f"no transactions to train on from {windows.train_start} or none to test on from "
            f"{windows.test_start}; move --train-start, or take longer windows"
        )
    return Fold(windows, train, test)
