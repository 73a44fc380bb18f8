"""Features of training sets equal the stream's bit for bit, and match the Fraud Detection Handbook's."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness.handbook import handbook_file
from harness.log_world import HOUR
from histories import History, histories, replay
from hypothesis import given
from thoroughness import examples

from feature_store.catalogue import COLUMN
from feature_store.training import handbook, training_set
from feature_store.training.training_set import TrainingSetError

pytestmark = pytest.mark.unit


def table(history: History) -> pa.Table:
    """A history's transactions in the contract's columns."""
    rows = history.transactions
    return pa.table(
        {
            "transaction_id": pa.array([tx.transaction_id for tx in rows], pa.string()),
            "card_id": pa.array([tx.card_id for tx in rows], pa.string()),
            "merchant_id": pa.array([tx.merchant_id for tx in rows], pa.string()),
            "amount": pa.array([tx.units / 10_000 for tx in rows], pa.float64()),
            "currency": pa.array([tx.currency for tx in rows], pa.string()),
            "country": pa.array([tx.country for tx in rows], pa.string()),
            "event_time": pa.array([tx.event_time for tx in rows], pa.int64()),
            "arrival_time": pa.array([tx.arrival for tx in rows], pa.int64()),
        }
    )


@examples(30, thorough=1000)
@given(histories())
def test_training_set_equals_the_stream_bit_for_bit(history):
    history.profiles.clear()
    assert training_set.build(table(history)).tobytes() == replay(history, (3, 11)).features.tobytes()


def test_profiles_of_a_training_set_are_known_from_the_beginning():
    history = History()
    history.tx(0)
    history.profile("r", HOUR, home_country="DE", credit_limit=200.0, risk_tier=2, opened_on=20_000)
    profiles = pa.table(
        {
            "card_id": ["c"],
            "status": ["active"],
            "home_country": ["DE"],
            "currency": ["EUR"],
            "credit_limit": [200.0],
            "risk_tier": [2],
            "opened_on": pa.array([20_000], pa.int32()),
        }
    )
    streamed = replay(history, read_ahead=2 * HOUR).features
    assert training_set.build(table(history), profiles).tobytes() == streamed.tobytes()
    assert streamed[0, COLUMN["limit_use_24h"]] == 0.05


@pytest.mark.parametrize(
    "name", ["transaction_id", "card_id", "merchant_id", "amount", "country", "event_time"]
)
def test_missing_column_and_nulls_are_named(name):
    history = History()
    history.tx(0)
    history.tx(1)
    good = table(history).drop_columns(["arrival_time"])
    with pytest.raises(TrainingSetError, match=name):
        training_set.build(good.drop_columns([name]))
    column = good.column_names.index(name)
    holed = pa.array([good[name][0].as_py(), None], good[name].type)
    with pytest.raises(TrainingSetError, match=f"{name}.* null"):
        training_set.build(good.set_column(column, name, holed))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("amount", pa.array(["much"])),
        ("event_time", pa.array([1.5])),
        ("event_time", pa.array(["soon"])),
        ("card_id", pa.array([["c"]])),
        ("country", pa.array(["FRA"])),
        ("country", pa.array(["fr"])),
        ("amount", pa.array([float("nan")])),
        ("amount", pa.array([-1.0])),
    ],
)
def test_columns_of_the_wrong_kind_are_named(name, values):
    history = History()
    history.tx(0)
    good = table(history)
    with pytest.raises(TrainingSetError, match=name):
        training_set.build(good.set_column(good.column_names.index(name), name, values))


def known(cards: pa.Array) -> pa.Table:
    """Equal profiles of some cards."""
    row = {
        "status": "active", "home_country": "ZZ", "currency": "EUR", "credit_limit": 0.0, "risk_tier": 0,
        "opened_on": 0,
    }  # fmt: skip
    same = {name: pa.repeat(value, len(cards)) for name, value in row.items()}
    return pa.table({"card_id": cards, **same})


AUTHORS = {
    "TX_AMOUNT": "amount",
    "TX_DURING_WEEKEND": "is_weekend",
    "TX_DURING_NIGHT": "is_night",
    "CUSTOMER_ID_NB_TX_1DAY_WINDOW": "count_24h",
    "CUSTOMER_ID_AVG_AMOUNT_1DAY_WINDOW": "mean_24h",
    "CUSTOMER_ID_NB_TX_7DAY_WINDOW": "count_7d",
    "CUSTOMER_ID_AVG_AMOUNT_7DAY_WINDOW": "mean_7d",
    "CUSTOMER_ID_NB_TX_30DAY_WINDOW": "count_30d",
    "CUSTOMER_ID_AVG_AMOUNT_30DAY_WINDOW": "mean_30d",
}
"""The handbook's column -> ours of the same meaning."""


@pytest.fixture(scope="module")
def handbook_files() -> tuple[Path, Path]:
    """Files of the handbook's transactions and features."""
    return handbook_file("transactions"), handbook_file("features")


def test_the_handbooks_features_are_reproduced_by_the_kernels(handbook_files):
    """The features in `AUTHORS`, computed from all transactions, equal those in the handbook's features file.

    The handbook's windows (pandas' `rolling`) exclude their start and include their end, like ours; its rows
    are in order of time. All customers have profiles: without one, a card with a single transaction would be
    forgotten after 8 days.
    """
    raw, theirs = (pq.read_table(path) for path in handbook_files)
    transactions = handbook.transactions(raw)
    ours = training_set.build(transactions, known(transactions["card_id"].unique()))
    ids = raw["TRANSACTION_ID"].to_numpy()
    rows = np.searchsorted(ids, theirs["TRANSACTION_ID"].to_numpy())
    assert (ids[rows] == theirs["TRANSACTION_ID"].to_numpy()).all()
    assert rows.size > 1000
    for name, feature in AUTHORS.items():
        wanted = theirs[name].to_numpy().astype(np.float64)
        np.testing.assert_allclose(ours[rows, COLUMN[feature]], wanted, rtol=0, atol=1e-6, err_msg=name)
