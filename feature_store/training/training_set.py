"""Point-in-time features of a table of transactions, by the same kernels as the stream.

Transactions that the stream does not decide get no features: repeated ones, and those whose event time is too
far from the arrival. All others get the same features as in the stream, bit for bit, if the stream processed
them in the same order: a card's transactions by arrival, equal arrivals in the table's order.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.kernels.feature_kernel import N_FEATURES
from feature_store.state.arena import MemoryArena
from feature_store.state.group_state import DEFAULT_LATENESS_MS, GroupState
from feature_store.training.columns import TrainingSetError
from feature_store.training.transaction_table import (
    arrivals,
    country_codes,
    profile_records,
    to_records,
)

__all__ = [
    "Decisions",
    "PointInTime",
    "TrainingSetError",
    "arrival_order",
    "build",
    "country_codes",
    "to_records",
]

CHUNK = 50_000
"""Transactions per chunk. Their features take 26 MB; glibc's malloc reuses freed blocks up to 32 MB only."""
DEFAULT_SKEW_MS = 5 * 60_000

OUTCOMES = ("accepted", "duplicate", "too_late", "future_event_time")
ACCEPTED, DUPLICATE, TOO_LATE, FUTURE = range(4)


@dataclass(frozen=True)
class Decisions:
    """Features and outcomes of n transactions, row by row."""

    features: NDArray[np.float64]
    """Shape (n, number of features); NaN in every column of rows that are not ACCEPTED."""
    outcome: NDArray[np.int8]
    """Index into OUTCOMES, shape (n,)."""


class PointInTime:
    """Feature computation over transactions in order of arrival, in chunks of any size."""

    def __init__(
        self,
        profiles: pa.Table | None = None,
        *,
        lateness_ms: int = DEFAULT_LATENESS_MS,
        skew_ms: int = DEFAULT_SKEW_MS,
    ) -> None:
        """Create an empty history.

        Args:
            profiles: columns of the profile contract, see `profile_records`.
            lateness_ms: a transaction whose event time is further than this behind its arrival is TOO_LATE.
            skew_ms: a transaction whose event time is further than this ahead of its arrival is FUTURE.
        """
        self._state = GroupState(MemoryArena(), lateness_ms)
        self._lateness_ms, self._skew_ms = lateness_ms, skew_ms
        if profiles is not None:
            changes = profile_records(profiles)
            self._state.change_profiles(changes, self._state.card_numbers(changes))

    def features(self, records: NDArray[np.void]) -> Decisions:
        """Compute the features of the next transactions.

        Args:
            records: records of TRANSACTION in order of arrival, shape (n,).
        """
        outcome = np.zeros(records.size, dtype=np.int8)
        ahead = records["time"] - records["arrival"]
        outcome[ahead < -self._lateness_ms] = TOO_LATE
        outcome[ahead > self._skew_ms] = FUTURE
        timely = np.flatnonzero(outcome == ACCEPTED)
        if timely.size == records.size:
            return Decisions(self._apply(records, outcome), outcome)
        features = np.full((records.size, N_FEATURES), np.nan)
        timely_outcome = outcome[timely]
        features[timely] = self._apply(records[timely], timely_outcome)
        outcome[timely] = timely_outcome
        return Decisions(features, outcome)

    def _apply(self, records: NDArray[np.void], outcome: NDArray[np.int8]) -> NDArray[np.float64]:
        applied = self._state.apply(records, self._state.card_numbers(records))
        outcome[applied.duplicate] = DUPLICATE
        return applied.by_row()


def arrival_order(arrival: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return row numbers in stable order of arrival, shape (n,); None if the rows already have that order."""
    if (arrival[1:] >= arrival[:-1]).all():
        return None
    return np.argsort(arrival, kind="stable")


def build(transactions: pa.Table, profiles: pa.Table | None = None) -> NDArray[np.float64]:
    """Compute the features of each transaction as of its arrival.

    Args:
        transactions: n rows, columns of the transaction contract and optionally arrival_time (default:
            event_time); processed in order of arrival.
        profiles: columns of the profile contract; a row is visible from its `arrival_time` on, or from the
            beginning if that is null or missing.

    Returns:
        Shape (n, N_FEATURES), rows in the table's order; NaN where unknown. Transactions that the stream
        does not decide (repeated, or event time too far off) have NaN in every column.
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
