"""The Fraud Detection Handbook's split by time: training window, label delay, test window.

The test window leaves out cards that are known as compromised.

Le Borgne et al., Reproducible Machine Learning for Credit Card Fraud Detection (2022), chapters 3 and 5.
Days are UTC days of arrival, numbered from 1970-01-01.
"""

from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from models.errors import ModelError

STEP_DAYS = 7
"""Days from one fold to the next."""
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Windows:
    """Consecutive windows: training days, delay days (in neither set, as labels come late), test days."""

    train_start: date
    train_days: int = 7
    delay_days: int = 7
    test_days: int = 7

    def fold(self, number: int) -> "Windows":
        """Return the windows of fold 0, 1, ...: every date moves by STEP_DAYS per fold."""
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
    """Row numbers of one fold, ascending."""

    windows: Windows
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def split(
    windows: Windows, day: NDArray[np.int64], card: NDArray[np.int64], fraud: NDArray[np.bool_]
) -> Fold:
    """Select the rows to train on and the rows to test on.

    A card with a fraud since the first training day is known as compromised once the delay has passed: test
    day d excludes all cards with a fraud on a day from the first training day to d - delay - 1.

    Args:
        day: day number of each row, shape (n,).
        card: card number of each row, shape (n,).
        fraud: whether each row is fraud, shape (n,).

    Raises:
        ModelError: the history has no rows to train on or none to test on, begins after the first training
            day, or ends before the last test day.
    """
    in_train = (day >= windows.first_day) & (day < windows.first_day + windows.train_days)
    train = np.flatnonzero(in_train)
    if day.size and (day.min() > windows.first_day or day.max() < windows.end_day - 1):
        first, last = (_EPOCH + timedelta(int(number)) for number in (day.min(), day.max()))
        raise ModelError(
            f"training and test need transactions from {windows.train_start} to "
            f"{_EPOCH + timedelta(windows.end_day - 1)}, but the history has {first} to {last} only; "
            "move --train-start, or ask for fewer --folds"
        )
    known_from = np.full(int(card.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    recent = fraud & (day >= windows.first_day)
    np.minimum.at(known_from, card[recent], day[recent] + windows.delay_days + 1)
    in_test = (day >= windows.first_test_day) & (day < windows.end_day)
    test = np.flatnonzero(in_test & (known_from[card] > day))
    if not train.size or not test.size:
        raise ModelError(
            f"no transactions to train on from {windows.train_start} or none to test on from "
            f"{windows.test_start}; move --train-start, or take longer windows"
        )
    return Fold(windows, train, test)
