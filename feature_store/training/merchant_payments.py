"""Merchant label features of a history that is read chunk by chunk."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feature_store.catalogue import COLUMN, SPIKE_RATIO
from feature_store.merchants.catalogue import ALL_NAMES, MERCHANT_FEATURES
from feature_store.merchants.facts import Facts
from feature_store.merchants.fraud_spans import FraudSpans
from feature_store.merchants.offline import facts_of, features_as_of
from feature_store.state.card_lookup import label_age_ms
from feature_store.state.group_state import DEFAULT_LATENESS_MS
from feature_store.training.labels import Labels
from feature_store.training.merchant_reports import Reports, UndatedLabels
from feature_store.training.training_files import Rows
from feature_store.training.training_set import ACCEPTED, CHUNK, Decisions, PointInTime, arrival_order
from feature_store.training.transaction_table import arrivals


@dataclass(frozen=True)
class MerchantLabels:
    """Labels and label delay, from which merchant label features are computed."""

    reports: UndatedLabels | Reports
    """Spans of time in which transactions were labelled as fraud."""
    delay_ms: int
    """Label delay, at least 0: a transaction not reported within this time counts as genuine."""

    @staticmethod
    def of(table: pa.Table | None, delay_ms: int) -> "MerchantLabels":
        """Read labels with or without times.

        Args:
            table: the chargeback contract's columns; without a column `reported_at`, a label becomes known
                one label delay after the arrival of its transaction. None: labels come from the transactions'
                own column `label`, and also become known one label delay after the arrival.
            delay_ms: label delay, at least 0.
        """
        if table is None:
            return MerchantLabels(UndatedLabels(delay_ms), delay_ms)
        dated = "reported_at" in table.column_names
        return MerchantLabels(Reports(table) if dated else UndatedLabels(delay_ms, Labels(table)), delay_ms)


class Payments:
    """Accepted transactions of a history, with the spans of time in which they were labelled as fraud."""

    def __init__(self, reports: UndatedLabels | Reports) -> None:
        self._reports = reports
        self._chunks: list[_Chunk] = []

    def add(self, rows: Rows, decisions: Decisions) -> None:
        """Add the next transactions; those that are not accepted are ignored.

        Args:
            rows: in order of arrival, shape (n,).
        """
        accepted = np.flatnonzero(decisions.outcome == ACCEPTED)
        rows = rows if accepted.size == len(rows) else rows.take(accepted)
        merchant, arrival, time = (rows.records[name].copy() for name in ("merchant", "arrival", "time"))
        # an unknown ratio is NaN and compares as no spike
        spike = decisions.features[accepted, COLUMN["ratio_robust"]] > SPIKE_RATIO
        self._chunks.append(_Chunk(merchant, arrival, time, spike, self._reports.fraud_spans(rows)))

    @property
    def spans(self) -> FraudSpans:
        """Spans of time in which the accepted transactions were labelled as fraud."""
        starts = np.cumsum([0, *(chunk.merchant.size for chunk in self._chunks[:-1])])
        return FraudSpans.concat(
            [
                FraudSpans(chunk.spans.row + start, chunk.spans.reported_at, chunk.spans.reversed_at)
                for chunk, start in zip(self._chunks, starts.tolist(), strict=True)
            ]
        )

    def facts(self, lateness_ms: int = DEFAULT_LATENESS_MS) -> Facts:
        """Build the merchant facts of all transactions added, as the job writes them to `merchant-facts`."""
        merchant, arrival, time, spike = (
            np.concatenate([getattr(chunk, name) for chunk in self._chunks])
            for name in ("merchant", "arrival", "time", "spike")
        )
        return facts_of(merchant, arrival, spike, self.spans.reported_within(label_age_ms(lateness_ms), time))


@dataclass(frozen=True)
class _Chunk:
    """Accepted transactions of one chunk."""

    merchant: NDArray[np.uint64]
    arrival: NDArray[np.int64]
    time: NDArray[np.int64]
    spike: NDArray[np.bool_]
    spans: FraudSpans


def with_merchants(facts: Facts, records: NDArray[np.void], decisions: Decisions, delay_ms: int) -> Decisions:
    """Append merchant label features to the card features of n transactions.

    Args:
        facts: facts of every transaction up to the last of `records`; later facts are ignored.
        records: TRANSACTION, shape (n,).

    Returns:
        Decisions with features of shape (n, len(ALL_NAMES)).
    """
    merchant = np.full((records.size, len(MERCHANT_FEATURES)), np.nan)
    accepted = decisions.outcome == ACCEPTED
    merchant[accepted] = features_as_of(
        facts, records["merchant"][accepted], records["arrival"][accepted], delay_ms
    )
    return Decisions(np.hstack([decisions.features, merchant]), decisions.outcome)


def build(
    transactions: pa.Table, labels: MerchantLabels, profiles: pa.Table | None = None
) -> NDArray[np.float64]:
    """Compute the features of each transaction as of its arrival, merchant label features included.

    Args:
        transactions: n rows, as for `training_set.build`.
        profiles: as for `training_set.build`.

    Returns:
        Shape (n, len(ALL_NAMES)), rows in the table's order; NaN where unknown. Transactions that the stream
        does not decide have NaN in every column.
    """
    order = arrival_order(arrivals(transactions))
    ordered = transactions if order is None else transactions.take(pa.array(order))
    point_in_time, payments = PointInTime(profiles), Payments(labels.reports)
    parts: list[tuple[NDArray[np.void], Decisions]] = []
    for start in range(0, len(ordered), CHUNK):
        rows = Rows.of(ordered.slice(start, CHUNK), start, None)
        parts.append((rows.records, point_in_time.features(rows.records)))
        payments.add(rows, parts[-1][1])
    features = np.empty((len(ordered), len(ALL_NAMES)))
    if not parts:
        return features
    facts = payments.facts()
    for number, (records, decisions) in enumerate(parts):
        rows_of = slice(number * CHUNK, number * CHUNK + records.size)
        places = rows_of if order is None else order[rows_of]
        features[places] = with_merchants(facts, records, decisions, labels.delay_ms).features
    return features
