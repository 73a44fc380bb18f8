"""When each fraud became known, and when that was taken back: from labels without times, or from reports."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feature_store.labels import COLUMNS, LabelError, Labels, identities, is_fraud
from feature_store.merchants.catalogue import NEVER
from feature_store.training_files import Rows


@dataclass(frozen=True)
class Known:
    """Spans of time in which transactions were known as frauds; one transaction may have several."""

    row: NDArray[np.int64]
    """Which transaction, shape (k,)."""
    reported_at: NDArray[np.int64]
    """From when on, ms, shape (k,)."""
    reversed_at: NDArray[np.int64]
    """Until when, ms; NEVER where the report still stands, shape (k,)."""

    @staticmethod
    def concat(parts: "list[Known]") -> "Known":
        """All parts one after another; at least one."""
        return Known(
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.reported_at for part in parts]),
            np.concatenate([part.reversed_at for part in parts]),
        )

    def said_within(self, age_ms: int, times: NDArray[np.int64]) -> "Known":
        """Without what was reported or taken back too late for the stream to find the transaction.

        Args:
            age_ms: between a transaction's event time and its label less than this.
            times: event times of n transactions, ms, shape (n,).
        """
        times = times[self.row]
        kept = self.reported_at - times < age_ms
        ends = np.where(self.reversed_at - times < age_ms, self.reversed_at, NEVER)
        return Known(self.row[kept], self.reported_at[kept], ends[kept])

    def fraud(self, rows: int) -> NDArray[np.bool_]:
        """Which of n transactions are frauds in the end, shape (rows,)."""
        return self.fraud_at(NEVER - 1, rows)

    def fraud_at(self, time: int, rows: int) -> NDArray[np.bool_]:
        """Which of n transactions were known as frauds at a time (ms), shape (rows,)."""
        fraud = np.zeros(rows, dtype=np.bool_)
        fraud[self.row[(self.reported_at <= time) & (time < self.reversed_at)]] = True
        return fraud


class Undated:
    """Labels without times: each fraud counts as reported a fixed delay after its arrival."""

    def __init__(self, delay_ms: int, labels: Labels | None = None) -> None:
        """Fix the delay.

        Args:
            delay_ms: from arrival to report.
            labels: of the transactions; default: their own column `label`.
        """
        self._delay_ms, self._labels = delay_ms, labels

    def known(self, rows: Rows) -> Known:
        """Of n transactions.

        Raises:
            LabelError: they have no labels.
        """
        label = rows.label if self._labels is None else self._labels.of(rows.card_id, rows.transaction_id)
        if label is None:
            raise LabelError("the history has no column 'label'; give --labels")
        row = np.flatnonzero(label)
        reported_at = rows.records["arrival"][row] + self._delay_ms
        return Known(row, reported_at, np.full(row.size, NEVER))


class Reports:
    """Reports by card and transaction: a fraud from `reported_at` on, until a later report says genuine."""

    def __init__(self, table: pa.Table) -> None:
        """Index them.

        Args:
            table: columns of the chargeback contract with `reported_at` (ms), in any order.

        Raises:
            LabelError: a column is missing, has nulls or is of another type.
        """
        needed = (*COLUMNS, "reported_at")
        missing = [name for name in needed if name not in table.column_names]
        if missing:
            raise LabelError(
                f"the labels have no column {missing[0]!r}; give the chargeback contract's columns"
            )
        holes = [name for name in needed if table[name].null_count]
        if holes:
            raise LabelError(f"the labels have nulls in column {holes[0]!r}; remove those rows")
        encoded = identities(table["card_id"], table["transaction_id"]).dictionary_encode()
        self._identities = encoded.dictionary
        number = np.asarray(encoded.indices)
        at = _milliseconds(table["reported_at"])
        order = np.lexsort((at, number))  # stable: equal times stay in the table's order
        number, at, fraud = number[order], at[order], is_fraud(table["label"])[order]
        # only what changes a transaction's standing begins or ends a span
        first = np.append(True, number[1:] != number[:-1]) if number.size else np.zeros(0, dtype=np.bool_)
        was = np.append(False, fraud[:-1]) & ~first if number.size else fraud
        changes = np.flatnonzero(fraud != was)
        number, at, fraud = number[changes], at[changes], fraud[changes]
        begins = np.flatnonzero(fraud)
        after = np.minimum(begins + 1, max(number.size - 1, 0))
        ended = (begins + 1 < number.size) & (number[after] == number[begins])
        self._number, self._from = number[begins], at[begins]
        self._until = np.where(ended, at[after], NEVER)

    def known(self, rows: Rows) -> Known:
        """Of n transactions."""
        found = pc.index_in(identities(rows.card_id, rows.transaction_id), value_set=self._identities)
        number = np.asarray(pc.fill_null(found, -1)).astype(np.int64)
        row = np.flatnonzero(number >= 0)
        starts = np.searchsorted(self._number, number[row])
        spans = np.searchsorted(self._number, number[row], side="right") - starts
        # each row as often as it has spans, and beside it which span
        within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
        which = np.repeat(starts, spans) + within
        return Known(np.repeat(row, spans), self._from[which], self._until[which])


def _milliseconds(column: pa.ChunkedArray) -> NDArray[np.int64]:
    try:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        return np.asarray(column.cast(pa.int64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as fault:
        raise LabelError(f"reported_at is no time in ms ({fault}); mend the labels") from None
