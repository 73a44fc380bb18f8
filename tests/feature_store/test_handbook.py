"""Conversion of the Fraud Detection Handbook's columns to the transaction contract's."""

from datetime import datetime

import pyarrow as pa
import pytest

from feature_store.training import handbook
from feature_store.training.columns import TrainingSetError

pytestmark = pytest.mark.unit

TABLE = pa.table(
    {
        "TRANSACTION_ID": [0, 1],
        "TX_DATETIME": pa.array([datetime(2018, 4, 1, 0, 0, 31), datetime(2018, 4, 2)], pa.timestamp("ns")),
        "CUSTOMER_ID": [596, 2],
        "TERMINAL_ID": [3156, 1365],
        "TX_AMOUNT": [57.16, 146.0],
        "TX_FRAUD": [0, 1],
        "TX_DURING_NIGHT": [1, 1],
    }
)


def test_rows_take_the_contracts_names() -> None:
    assert handbook.is_handbook(TABLE.column_names)
    assert handbook.transactions(TABLE).to_pydict() == {
        "transaction_id": ["h-0", "h-1"],
        "card_id": ["c-596", "c-2"],
        "merchant_id": ["t-3156", "t-1365"],
        "amount": [57.16, 146.0],
        "currency": ["EUR", "EUR"],
        "country": ["ZZ", "ZZ"],
        "event_time": [1_522_540_831_000, 1_522_627_200_000],
        "label": [0, 1],
    }


def test_types_that_other_tools_write_are_read() -> None:
    odd = TABLE.set_column(1, "TX_DATETIME", pa.array(["2018-04-01 00:00:31", "2018-04-02 00:00:00"]))
    odd = odd.set_column(2, "CUSTOMER_ID", pa.array(["596", "2"])).set_column(
        3, "TERMINAL_ID", pa.array([3156.0, 1365.0])
    )
    odd = odd.set_column(4, "TX_AMOUNT", pa.array([57, 146]))
    read = handbook.transactions(odd).to_pydict()
    assert read["event_time"] == [1_522_540_831_000, 1_522_627_200_000]
    assert read["card_id"] == ["c-596", "c-2"]
    assert read["merchant_id"] == ["t-3156", "t-1365"]
    assert read["amount"] == [57.0, 146.0]


def test_without_labels_there_is_no_label_column() -> None:
    assert "label" not in handbook.transactions(TABLE.drop_columns(["TX_FRAUD"])).column_names


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("TX_AMOUNT", None, "without TX_AMOUNT"),
        ("CUSTOMER_ID", pa.array([1, None]), "nulls in CUSTOMER_ID"),
        ("TX_AMOUNT", pa.array(["much", "little"]), "TX_AMOUNT, string, is not double"),
        ("TX_DATETIME", pa.array([1, 2]), "TX_DATETIME is int64"),
        ("TX_DATETIME", pa.array(["yesterday", "today"]), "TX_DATETIME cannot be read"),
        ("TX_FRAUD", pa.array([[1], [0]]), "TX_FRAUD is list"),
    ],
)
def test_other_tables_are_refused(column: str, values: pa.Array | None, message: str) -> None:
    table = TABLE.drop_columns([column])
    if values is not None:
        table = table.append_column(column, values)
    with pytest.raises(TrainingSetError, match=message):
        handbook.transactions(table)
