"""Point-in-time features of tables: order, outcomes, profiles, and refused tables."""

import numpy as np
import pyarrow as pa
import pytest

from feature_store.catalogue import COLUMN
from feature_store.training import training_set
from feature_store.training.training_set import (
    ACCEPTED,
    DUPLICATE,
    FUTURE,
    TOO_LATE,
    PointInTime,
    TrainingSetError,
)
from feature_store.training.transaction_table import to_records

pytestmark = pytest.mark.unit

NOW = 1_780_000_200_000
DAY, MINUTE = 86_400_000, 60_000


def table(*event_times: int, arrivals: list[int] | None = None, **columns: list[object]) -> pa.Table:
    """Transactions of one card, times relative to NOW."""
    n = len(event_times)
    fields = {
        "transaction_id": [f"t{i}" for i in range(n)],
        "card_id": ["c"] * n,
        "merchant_id": ["m"] * n,
        "amount": [10.0] * n,
        "country": ["DE"] * n,
        "event_time": [NOW + time for time in event_times],
    }
    if arrivals is not None:
        fields["arrival_time"] = [NOW + time for time in arrivals]
    return pa.table({**fields, **columns})


def count_all(transactions: pa.Table) -> list[float]:
    return training_set.build(transactions)[:, COLUMN["count_all"]].tolist()


def test_rows_are_processed_by_arrival_and_returned_in_the_tables_order() -> None:
    assert count_all(table(2, 0, 1)) == [2, 0, 1]


def test_equal_arrivals_keep_their_order() -> None:
    assert count_all(table(0, 1, 2, arrivals=[5, 5, 5])) == [0, 1, 2]


def test_a_late_transaction_counts_those_that_arrived_before_it() -> None:
    late = table(0, 10 * MINUTE, 5 * MINUTE, arrivals=[0, 10 * MINUTE, 11 * MINUTE])
    features = training_set.build(late)
    assert features[:, COLUMN["count_all"]].tolist() == [0, 1, 2]
    assert features[:, COLUMN["time_since_previous"]].tolist()[2] == 300


def test_undecided_transactions_have_no_features_and_no_effect() -> None:
    """Rows 1 to 3 are too late, a duplicate, and of the future; row 4 counts only row 0 before it."""
    transactions = table(
        0, -7 * DAY, 0, 5 * MINUTE + 3, 4,
        arrivals=[0, 1, 1, 2, 4], transaction_id=["a", "b", "a", "c", "d"],
    )  # fmt: skip
    decided = PointInTime().features(to_records(transactions))
    assert decided.outcome.tolist() == [ACCEPTED, TOO_LATE, DUPLICATE, FUTURE, ACCEPTED]
    assert np.isnan(decided.features[1:4]).all()
    assert decided.features[4, COLUMN["count_all"]] == 1


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    times = rng.integers(0, 30 * DAY, 500).tolist()
    transactions = table(*times, card_id=[f"c{i}" for i in rng.integers(0, 5, 500)])
    whole = training_set.build(transactions)
    monkeypatch.setattr(training_set, "CHUNK", 7)
    assert training_set.build(transactions).tobytes() == whole.tobytes()


def profile(**columns: list[object]) -> pa.Table:
    known: dict[str, list[object]] = {
        "card_id": ["c"], "status": ["active"], "home_country": ["DE"], "currency": ["EUR"],
        "credit_limit": [100.0], "risk_tier": [1], "opened_on": [20_000],
    }  # fmt: skip
    n = max((len(values) for values in columns.values()), default=1)
    return pa.table({**{name: values * n for name, values in known.items()}, **columns})


def risk(profiles: pa.Table, *times: int) -> list[float]:
    return training_set.build(table(*times), profiles)[:, COLUMN["risk_tier"]].tolist()


def test_profiles_without_arrival_are_visible_from_the_beginning_and_the_first_of_two_counts() -> None:
    assert risk(profile(risk_tier=[2, 3]), 0, 1) == [2, 2]


def test_profiles_with_an_arrival_are_visible_from_then_on() -> None:
    changes = profile(risk_tier=[3, 1, 2], arrival_time=[NOW + 10, NOW + 5, None])
    assert risk(changes, 0, 5, 9, 10) == [2, 1, 1, 3]


def test_arrivals_of_profiles_may_be_timestamps() -> None:
    times = pa.array([NOW + 10, NOW + 5, None], pa.timestamp("ms")).cast(pa.timestamp("us", "UTC"))
    changes = profile(risk_tier=[3, 1, 2], arrival_time=times)
    assert risk(changes, 0, 5, 9, 10) == [2, 1, 1, 3]


def test_times_may_be_timestamps() -> None:
    plain = table(0, 60_000)
    stamps = plain["event_time"].cast(pa.timestamp("ms")).cast(pa.timestamp("us", "UTC"))
    stamped = plain.set_column(plain.column_names.index("event_time"), "event_time", stamps)
    assert training_set.build(stamped).tobytes() == training_set.build(plain).tobytes()


def test_strings_may_be_dictionaries() -> None:
    encoded = table(0, 1, card_id=pa.array(["c", "c"]).dictionary_encode())
    assert count_all(encoded) == [0, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"amount": [1.0, float("nan")]}, "row 1: amount nan is not allowed"),
        ({"amount": [-0.01, 1.0]}, "row 0: amount -0.01"),
        ({"amount": [1.0, 2e9]}, "row 1: amount"),
        ({"amount": ["much", "little"]}, "column amount, string, is not double"),
        ({"amount": [[1.0], [2.0]]}, "column amount is list"),
        ({"country": ["DE", "de"]}, "row 1: country 'de'"),
        ({"country": ["D", "EUR"]}, "row 0: country 'D'"),
        ({"card_id": ["", "c"]}, "row 0: card_id ''"),
        ({"merchant_id": ["m", "m" * 65]}, "row 1: merchant_id"),
        ({"event_time": [NOW, -1]}, "row 1: event_time -1"),
        ({"event_time": [NOW, None]}, "'event_time' holds 1 nulls"),
    ],
)
def test_a_table_that_breaks_the_contract_is_refused(changed: dict[str, list[object]], message: str) -> None:
    with pytest.raises(TrainingSetError, match=message):
        training_set.build(table(0, 1, **changed))


def test_missing_columns_are_named() -> None:
    with pytest.raises(TrainingSetError, match="no column 'country'"):
        training_set.build(table(0).drop_columns(["country"]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"status": ["closing"]}, "status 'closing' is not allowed, it is one of active"),
        ({"risk_tier": [4]}, "risk_tier 4"),
        ({"credit_limit": [float("nan")]}, "credit_limit nan"),
        ({"home_country": ["Germany"]}, "home_country 'Germany'"),
        ({"opened_on": [None]}, "'opened_on' holds 1 nulls"),
        ({"arrival_time": ["soon"]}, "column arrival_time is string; give ms"),
        ({"arrival_time": [-5]}, "row 0: arrival_time -5"),
        # rows are numbered as in the table, not in order of arrival
        ({"arrival_time": [NOW, NOW + 9, NOW + 5], "risk_tier": [1, 4, 1]}, "row 1: risk_tier 4"),
    ],
)
def test_bad_profiles_are_refused(changed: dict[str, list[object]], message: str) -> None:
    with pytest.raises(TrainingSetError, match=message):
        training_set.build(table(0), profile(**changed))
