"""Spans of time in which transactions were labelled as fraud, as arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.merchants.catalogue import NEVER


@dataclass(frozen=True)
class FraudSpans:
    """k spans of time in which transactions were labelled as fraud; a transaction may have several."""

    row: NDArray[np.int64]
    """Row of the transaction, shape (k,)."""
    reported_at: NDArray[np.int64]
    """Start of the span, ms, shape (k,)."""
    reversed_at: NDArray[np.int64]
    """End of the span, ms; NEVER if the report was not reversed, shape (k,)."""

    @staticmethod
    def concat(parts: "list[FraudSpans]") -> "FraudSpans":
        """Concatenate parts; at least one."""
        return FraudSpans(
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.reported_at for part in parts]),
            np.concatenate([part.reversed_at for part in parts]),
        )

    def reported_within(self, age_ms: int, times: NDArray[np.int64]) -> "FraudSpans":
        """Drop reports and reversals that came too late for the stream to look up the transaction.

        Args:
            age_ms: a label must come less than this time after the transaction's event time.
            times: event times of n transactions, ms, shape (n,).
        """
        times = times[self.row]
        in_time = self.reported_at - times < age_ms
        ends = np.where(self.reversed_at - times < age_ms, self.reversed_at, NEVER)
        return FraudSpans(self.row[in_time], self.reported_at[in_time], ends[in_time])

    def fraud(self, rows: int) -> NDArray[np.bool_]:
        """Return which transactions are frauds after all reports, shape (rows,)."""
        return self.fraud_at(NEVER - 1, rows)

    def fraud_at(self, time: int, rows: int) -> NDArray[np.bool_]:
        """Return which transactions were labelled as fraud at a time (ms), shape (rows,)."""
        fraud = np.zeros(rows, dtype=np.bool_)
        fraud[self.row[(self.reported_at <= time) & (time < self.reversed_at)]] = True
        return fraud
