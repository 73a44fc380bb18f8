"""Conversion of reports to the spans of time in which a transaction was known as fraud."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merchant_oracle import Report, is_known_fraud
from thoroughness import examples

from feature_store.layout import TRANSACTION
from feature_store.merchants.catalogue import NEVER
from feature_store.merchants.fraud_spans import FraudSpans
from feature_store.training.columns import TrainingSetError
from feature_store.training.labels import LabelError, Labels
from feature_store.training.merchant_reports import Reports, UndatedLabels
from feature_store.training.training_files import Rows

pytestmark = pytest.mark.unit

IDS = ["1", "2", "3"]


def rows(label: list[int] | None = None) -> Rows:
    records = np.zeros(3, dtype=TRANSACTION)
    records["arrival"] = [10, 20, 30]
    known = None if label is None else np.array(label, dtype=np.int8)
    return Rows(records, pa.array(IDS), pa.array(["a", "a", "b"]), known)


def reported(reports: list[Report]) -> pa.Table:
    return pa.table(
        {
            "transaction_id": pa.array([IDS[report.tx] for report in reports], pa.string()),
            "card_id": pa.array(["aab"[report.tx] for report in reports], pa.string()),
            "label": pa.array(["fraud" if report.fraud else "genuine" for report in reports], pa.string()),
            "reported_at": pa.array([report.reported_at for report in reports], pa.int64()),
        }
    )


@examples(80)
@given(st.lists(st.builds(Report, st.integers(0, 2), st.integers(0, 6), st.booleans()), max_size=12))
def test_the_last_report_up_to_a_time_counts(reports):
    known = Reports(reported(reports)).fraud_spans(rows())
    for time in range(-1, 8):
        wanted = [is_known_fraud(number, reports, time) for number in range(3)]
        assert known.fraud_at(time, 3).tolist() == wanted
    assert known.fraud(3).tolist() == wanted


def test_reports_of_other_cards_are_ignored():
    strange = reported([Report(0, 1, True)]).set_column(1, "card_id", pa.array(["b"]))
    assert not Reports(strange).fraud_spans(rows()).fraud(3).any()


def test_reports_that_come_too_late_are_ignored():
    spans = FraudSpans(np.array([0, 0, 1, 2]), np.array([10, 40, 49, 19]), np.array([30, NEVER, NEVER, 29]))
    kept = spans.reported_within(20, np.array([5, 30, 9]))
    assert kept.row.tolist() == [0, 1, 2]
    assert kept.reported_at.tolist() == [10, 49, 19]
    assert kept.reversed_at.tolist() == [NEVER, NEVER, NEVER]


def test_labels_without_times_count_after_the_delay():
    own = UndatedLabels(5).fraud_spans(rows([1, 0, 1]))
    assert own.reported_at.tolist() == [15, 35]
    assert own.reversed_at.tolist() == [NEVER, NEVER]
    labels = Labels(reported([Report(1, 0, True)]).drop_columns(["reported_at"]))
    assert UndatedLabels(5, labels).fraud_spans(rows([1, 0, 1])).row.tolist() == [1]
    with pytest.raises(LabelError, match="--labels"):
        UndatedLabels(5).fraud_spans(rows())


@pytest.mark.parametrize("name", ["transaction_id", "card_id", "label", "reported_at"])
def test_missing_columns_and_nulls_are_named(name):
    good = reported([Report(0, 1, True)])
    with pytest.raises(LabelError, match=name):
        Reports(good.drop_columns([name]))
    holed = good.set_column(good.column_names.index(name), name, pa.nulls(1, good[name].type))
    with pytest.raises(LabelError, match=name):
        Reports(holed)


def test_invalid_times_are_refused():
    table = reported([Report(0, 1, True)])
    with pytest.raises(TrainingSetError, match="reported_at"):
        Reports(table.set_column(3, "reported_at", pa.array(["soon"])))
