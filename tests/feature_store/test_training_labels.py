"""Labels of transactions, from reports."""

import pyarrow as pa
import pytest

from feature_store.training.columns import TrainingSetError
from feature_store.training.labels import Labels, is_fraud

pytestmark = pytest.mark.unit


def reports(*rows: tuple[str, str, str], reported_at: list[int] | None = None) -> pa.Table:
    columns = dict(zip(("card_id", "transaction_id", "label"), zip(*rows, strict=True), strict=True))
    return pa.table({**columns, **({"reported_at": reported_at} if reported_at else {})})


def of(labels: Labels, *identities: tuple[str, str]) -> list[int]:
    cards, transactions = zip(*identities, strict=True)
    return labels.of(pa.chunked_array([cards]), pa.chunked_array([transactions])).tolist()


def test_a_transaction_is_identified_by_id_and_card() -> None:
    labels = Labels(reports(("a", "1", "fraud"), ("b", "2", "genuine")))
    assert of(labels, ("a", "1"), ("b", "1"), ("b", "2"), ("", "a1"), ("a1", "")) == [1, 0, 0, 0, 0]


def test_last_report_counts_by_row() -> None:
    labels = Labels(
        reports(("a", "1", "fraud"), ("a", "1", "genuine"), ("a", "2", "genuine"), ("a", "2", "fraud"))
    )
    assert of(labels, ("a", "1"), ("a", "2")) == [0, 1]


def test_the_last_report_counts_by_its_time_if_it_has_one() -> None:
    labels = Labels(reports(("a", "1", "fraud"), ("a", "1", "genuine"), reported_at=[2, 1]))
    assert of(labels, ("a", "1")) == [1]


def test_without_reports_all_are_genuine() -> None:
    empty = Labels(reports(("a", "1", "fraud")).slice(0, 0))
    assert of(empty, ("a", "1")) == [0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["fraud", "genuine", None]),
        pa.array(["fraud", "genuine", None], pa.large_string()),
        pa.array(["fraud", "genuine", None]).dictionary_encode(),
        pa.array([1, 0, None]),
        pa.array([1.0, 0.0, None]),
        pa.array([True, False, None]),
    ],
    ids=lambda column: str(column.type),
)
def test_labels_are_read_in_the_types_that_tools_write(column: pa.Array) -> None:
    assert is_fraud(pa.chunked_array([column])).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"card_id": ["a"], "label": ["fraud"]}), "no column 'transaction_id'"),
        (pa.table({"card_id": ["a"], "transaction_id": [None], "label": ["fraud"]}), "nulls in column"),
        (
            pa.table(
                {
                    "card_id": ["a"],
                    "transaction_id": ["1"],
                    "label": ["fraud"],
                    "reported_at": pa.array([None], pa.int64()),
                }
            ),
            "nulls in column 'reported_at'",
        ),
        (reports(("a", "1", "perhaps")), "column label holds 'perhaps'"),
        (pa.table({"card_id": ["a"], "transaction_id": ["1"], "label": [-1]}), "column label holds -1"),
        (pa.table({"card_id": ["a"], "transaction_id": ["1"], "label": [[1]]}), "column label is list"),
    ],
)
def test_other_labels_are_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(TrainingSetError, match=message):
        Labels(table)
