"""Labels, with or without times, as spans of time in which transactions were labelled as fraud."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feature_store.merchants.catalogue import NEVER
from feature_store.merchants.fraud_spans import FraudSpans
from feature_store.training.columns import flags
from feature_store.training.labels import COLUMNS, LabelError, Labels, Matches, identities, reports
from feature_store.training.training_files import Rows


class UndatedLabels:
    """Labels without times: each fraud counts as reported a fixed delay after its arrival."""

    def __init__(self, delay_ms: int, labels: Labels | None = None) -> None:
        """Store delay and labels.

        Args:
            delay_ms: time from arrival to report.
            labels: labels of the transactions; default: the transactions' own column `label`.
        """
        self._delay_ms, self._labels = delay_ms, labels
        self.matches = None if labels is None else labels.matches

    def fraud_spans(self, rows: Rows) -> FraudSpans:
        """Return the fraud spans of n transactions.

        Raises:
            LabelError: no labels were given, and the transactions have no column `label`.
        """
        label = rows.label if self._labels is None else self._labels.of(rows.card_id, rows.transaction_id)
        if label is None:
            raise LabelError("the history has no column 'label'; give --labels")
        row = np.flatnonzero(label)
        reported_at = rows.records["arrival"][row] + self._delay_ms
        return FraudSpans(row, reported_at, np.full(row.size, NEVER))


class Reports:
    """Reports by card and transaction: fraud from `reported_at` on, until a later report says genuine."""

    def __init__(self, table: pa.Table) -> None:
        """Index the reports.

        Args:
            table: columns of the chargeback contract with `reported_at` (ms), in any order.
        """
        table = reports(table, (*COLUMNS, "reported_at"))
        encoded = identities(table["card_id"], table["transaction_id"]).dictionary_encode()
        self._identities = encoded.dictionary
        self.matches = Matches(encoded.dictionary)
        number = np.asarray(encoded.indices)
        at = np.asarray(table["reported_at"])
        order = np.lexsort((at, number))  # stable: equal times stay in the table's order
        number, at, fraud = number[order], at[order], flags(table["label"])[order]
        # only a report that changes a transaction's label begins or ends a span
        first = np.append(True, number[1:] != number[:-1]) if number.size else np.zeros(0, dtype=np.bool_)
        was_fraud = np.append(False, fraud[:-1]) & ~first if number.size else fraud
        changes = np.flatnonzero(fraud != was_fraud)
        number, at, fraud = number[changes], at[changes], fraud[changes]
        begins = np.flatnonzero(fraud)
        after = np.minimum(begins + 1, max(number.size - 1, 0))
        ended = (begins + 1 < number.size) & (number[after] == number[begins])
        self._number, self._from = number[begins], at[begins]
        self._until = np.where(ended, at[after], NEVER)

    def fraud_spans(self, rows: Rows) -> FraudSpans:
        """Return the fraud spans of n transactions."""
        positions = pc.index_in(identities(rows.card_id, rows.transaction_id), value_set=self._identities)
        number = np.asarray(pc.fill_null(positions, -1)).astype(np.int64)
        row = np.flatnonzero(number >= 0)
        self.matches.add(number[row])
        starts = np.searchsorted(self._number, number[row])
        spans = np.searchsorted(self._number, number[row], side="right") - starts
        # repeat each row once per span, with the index of the span
        within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
        span = np.repeat(starts, spans) + within
        return FraudSpans(np.repeat(row, spans), self._from[span], self._until[span])
