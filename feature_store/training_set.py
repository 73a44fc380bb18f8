"""Point-in-time features of a table of transactions, by the same kernels as the stream.

What the stream does not decide gets no features here either: repeated transactions, and those whose clock is
too far off. All others get the features that the stream gives them, bit for bit, if it took them in the same
order: a card's transactions by arrival, equal arrivals in the table's order.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.arena import MemoryArena
from feature_store.group_state import DEFAULT_LATENESS_MS, GroupState
from feature_store.kernels import N_FEATURES
from feature_store.transaction_table import (
    TrainingSetError,
    arrivals,
    country_codes,
    profile_records,
    to_records,
)

__all__ = [
    "Decided",
    "PointInTime",
    "TrainingSetError",
    "arrival_order",
    "build",
    "country_codes",
    "to_records",
]

CHUNK = 50_000
"""Transactions computed at a time: 24 MB of features, which malloc keeps from one to the next."""
DEFAULT_SKEW_MS = 5 * 60_000

OUTCOMES = ("accepted", "duplicate", "too_late", "future_event_time")
ACCEPTED, DUPLICATE, TOO_LATE, FUTURE = range(4)


@dataclass(frozen=True)
class Decided:
    """What n transactions came to, row by row."""

    features: NDArray[np.float64]
    """Shape (n, len(FEATURES)); NaN in every column of rows that are not ACCEPTED."""
    outcome: NDArray[np.int8]
    """Index into OUTCOMES, shape (n,)."""


class PointInTime:
    """Takes transactions in order of arrival, in any chunks, and gives their features."""

    def __init__(
        self,
        profiles: pa.Table | None = None,
        *,
        lateness_ms: int = DEFAULT_LATENESS_MS,
        skew_ms: int = DEFAULT_SKEW_MS,
    ) -> None:
        """Start without any transaction.

        Args:
            profiles: columns of the profile contract, see `profile_records`.
            lateness_ms: an older transaction (event time against arrival) is TOO_LATE.
            skew_ms: one further ahead of its arrival is FUTURE.

        Raises:
            TrainingSetError: the profiles lack a column or hold what the contract does not allow.
        """
        self._state = GroupState(MemoryArena(), lateness_ms)
        self._lateness_ms, self._skew_ms = lateness_ms, skew_ms
        if profiles is not None:
            changes = profile_records(profiles)
            self._state.change_profiles(changes, self._state.card_numbers(changes))

    def features(self, records: NDArray[np.void]) -> Decided:
        """Features of the next transactions.

        Args:
            records: records of TRANSACTION in order of arrival, shape (n,).
        """
        outcome = np.zeros(records.size, dtype=np.int8)
        ahead = records["time"] - records["arrival"]
        outcome[ahead < -self._lateness_ms] = TOO_LATE
        outcome[ahead > self._skew_ms] = FUTURE
        timely = np.flatnonzero(outcome == ACCEPTED)
        if timely.size == records.size:
            return Decided(self._apply(records, outcome), outcome)
        features = np.full((records.size, N_FEATURES), np.nan)
        judged = outcome[timely]
        features[timely] = self._apply(records[timely], judged)
        outcome[timely] = judged
        return Decided(features, outcome)

    def _apply(self, records: NDArray[np.void], outcome: NDArray[np.int8]) -> NDArray[np.float64]:
        applied = self._state.apply(records, self._state.card_numbers(records))
        outcome[applied.duplicate] = DUPLICATE
        applied.features[applied.duplicate] = np.nan
        return applied.features


def arrival_order(arrival: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Rows by arrival, equal ones in their order, shape (n,); None if they are in that order already."""
    if (arrival[1:] >= arrival[:-1]).all():
        return None
    return np.argsort(arrival, kind="stable")


def build(transactions: pa.Table, profiles: pa.Table | None = None) -> NDArray[np.float64]:
    """Features of each transaction as of its arrival.

    Args:
        transactions: n rows, columns of the transaction contract and, where it is known, arrival_time
            (default: event_time); taken in order of arrival.
        profiles: columns of the profile contract; all known from the beginning, or from `arrival_time` on.

    Returns:
        Shape (n, len(FEATURES)), rows in the table's order; NaN where unknown. What the stream does not
        decide (repeated transactions, event times too far off) has NaN in every column.

    Raises:
        TrainingSetError: a column is missing, has nulls, is of another type or breaks the contract.
    """
    point_in_time = PointInTime(profiles)
    order = arrival_order(arrivals(transactions))
    features = np.empty((len(transactions), N_FEATURES))
    for start in range(0, len(transactions), CHUNK):
        if order is None:
            records = to_records(transactions.slice(start, CHUNK), start)
            features[start : start + CHUNK] = point_in_time.features(records).features
        else:
            rows = order[start : start + CHUNK]
            features[rows] = point_in_time.features(to_records(transactions.take(rows), start)).features
    return features
