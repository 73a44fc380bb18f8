"""`fraud features`: from files to a training set, in one process and on Spark."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thoroughness import THOROUGH
from typer.testing import CliRunner

from feature_store.catalogue import NAMES, feature_hash
from feature_store.commands import app
from feature_store.errors import FraudError
from feature_store.merchants.catalogue import ALL_NAMES, computed
from feature_store.training import training_set
from feature_store.training.merchant_payments import MerchantLabels, build
from feature_store.training.training_files import FEATURE_HASH

pytestmark = pytest.mark.without_stack
NOW = 1_780_000_200_000
DAY = 86_400_000


def history(rows: int = 5_000, seed: int = 2) -> pa.Table:
    """Thirty days of sixty cards, one of them hot; some transactions are repeated, late or dated ahead."""
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.integers(NOW, NOW + 30 * DAY, rows))
    lateness = np.where(
        rng.random(rows) < 0.1, rng.choice([-DAY // 100, DAY // 50, 5 * DAY, 8 * DAY], rows), 0
    )
    # half of the traffic is on one card: too many events to keep each, so it becomes hot (decision 5)
    card = np.where(rng.random(rows) < 0.5, 0, rng.integers(0, 60, rows))
    table = pa.table(
        {
            "transaction_id": [f"t{i}" for i in rng.integers(0, rows * 20, rows)],
            "card_id": [f"c{i}" for i in card],
            "merchant_id": [f"m{i}" for i in rng.integers(0, 50, rows)],
            "amount": np.round(rng.gamma(2, 30, rows), 2),
            "country": rng.choice(["DE", "CH", "FR", "ZZ"], rows),
            "event_time": arrival - lateness,
            "arrival_time": arrival,
            "label": (rng.random(rows) < 0.02).astype(np.int8),
        }
    )
    # one row in fifty repeats the row before it, with a later arrival
    again = np.arange(rows) - (rng.random(rows) < 0.02) * (np.arange(rows) > 0)
    return table.take(again).set_column(6, "arrival_time", table["arrival_time"])


def profiles() -> pa.Table:
    cards = [f"c{i}" for i in range(40)]
    return pa.table(
        {
            "card_id": cards, "status": ["active"] * 40, "home_country": ["DE"] * 40,
            "currency": ["EUR"] * 40, "credit_limit": np.linspace(0, 3000, 40),
            "risk_tier": [0, 1, 2, 3] * 10,
            "opened_on": pa.array([19_000 + i for i in range(40)], pa.date32()),
        }
    )  # fmt: skip


def run(
    directory: Path, table: pa.Table, *options: str, name: str = "out.parquet", note: str = ""
) -> pa.Table:
    """Run the command on a table, check that it prints `note`; return what it writes."""
    source = directory / "transactions.parquet"
    pq.write_table(table, source, row_group_size=1_234)
    arguments = ["--transactions", str(source), "--output", str(directory / name), *options]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"{len(table):,} rows" in done.output
    assert note in done.stderr
    return pq.read_table(directory / name)


def fault(*arguments: str | Path) -> str:
    """Run the command, which must fail; return its error of one line."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(done.exception, FraudError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


def bits(table: pa.Table, names: tuple[str, ...] = NAMES) -> bytes:
    return np.column_stack([table[name].to_numpy() for name in names]).tobytes()


def reports(table: pa.Table) -> pa.Table:
    """Report every tenth transaction as fraud within five days, and reverse every third of these reports."""
    first = table.take(np.arange(0, len(table), 10))
    at = first["arrival_time"].to_numpy() + np.random.default_rng(4).integers(0, 5 * DAY, len(first))
    back = first.take(np.arange(0, len(first), 3))
    both = pa.concat_tables([first, back]).select(["transaction_id", "card_id"])
    labels = ["fraud"] * len(first) + ["genuine"] * len(back)
    times = np.concatenate([at, at[::3] + DAY])
    return both.append_column("label", pa.array(labels)).append_column("reported_at", pa.array(times))


@pytest.mark.unit
def test_columns_are_identity_outcome_label_and_the_catalogue(tmp_path: Path) -> None:
    output = run(tmp_path, history())
    assert output.column_names == [
        "row", "transaction_id", "card_id", "event_time", "arrival_time", "outcome", "label", *NAMES
    ]  # fmt: skip
    assert {output.schema.field(name).type for name in NAMES} == {pa.float64()}
    assert output.schema.metadata[FEATURE_HASH].decode() == feature_hash()
    table = history()
    for name in ("transaction_id", "card_id", "event_time", "label"):
        assert output[name].to_pylist() == table[name].to_pylist()
    assert set(output["outcome"].to_pylist()) == {"accepted", "duplicate", "too_late", "future_event_time"}


@pytest.mark.unit
def test_features_equal_those_of_build(tmp_path: Path) -> None:
    pq.write_table(profiles(), tmp_path / "profiles.parquet")
    output = run(tmp_path, history(), "--profiles", str(tmp_path / "profiles.parquet"))
    assert bits(output) == training_set.build(history(), profiles()).tobytes()


@pytest.mark.unit
def test_unsorted_input_is_sorted_with_a_note(tmp_path: Path) -> None:
    table = history()
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    output = run(tmp_path, shuffled, note="note: the rows were not in order of arrival; they were sorted")
    assert (np.diff(output["arrival_time"].to_numpy()) >= 0).all()
    in_place = output.take(np.argsort(output["row"].to_numpy()))
    assert bits(in_place) == training_set.build(shuffled).tobytes()
    assert in_place["transaction_id"].to_pylist() == shuffled["transaction_id"].to_pylist()
    assert in_place["label"].to_pylist() == shuffled["label"].to_pylist()


@pytest.mark.unit
def test_labels_are_joined(tmp_path: Path) -> None:
    table = history(200)
    reported = table.slice(10, 5).select(["card_id", "transaction_id"])
    pq.write_table(reported.append_column("label", pa.array(["fraud"] * 5)), tmp_path / "labels.parquet")
    output = run(tmp_path, table, "--labels", str(tmp_path / "labels.parquet"))
    assert np.flatnonzero(output["label"].to_numpy()).tolist() == [10, 11, 12, 13, 14]
    unlabelled = run(tmp_path, table.drop_columns(["label"]), "--force")
    assert "label" not in unlabelled.column_names


@pytest.mark.unit
def test_merchant_label_features_are_the_last_columns(tmp_path: Path) -> None:
    table, reported = history(), reports(history())
    pq.write_table(reported, tmp_path / "labels.parquet")
    options = ("--labels", str(tmp_path / "labels.parquet"), "--merchant-labels", "--label-delay-days", "2")
    output = run(tmp_path, table, *options)
    assert output.column_names[-len(ALL_NAMES) :] == list(ALL_NAMES)
    assert output.schema.metadata[FEATURE_HASH].decode() == feature_hash(computed(merchants=True))
    wanted = build(table, MerchantLabels.of(reported, 2 * DAY))
    assert bits(output, ALL_NAMES) == wanted.tobytes()
    assert np.nansum(output["merchant_unexplained_30d"].to_numpy()) > 100
    others = output["outcome"].cast(pa.string()).to_numpy(zero_copy_only=False) != "accepted"
    assert np.isnan(wanted[others]).all()
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    again = run(tmp_path, shuffled, *options, "--force").sort_by("row")
    assert bits(again, ALL_NAMES) == build(shuffled, MerchantLabels.of(reported, 2 * DAY)).tobytes()


@pytest.mark.unit
def test_merchant_label_features_need_labels(tmp_path: Path) -> None:
    pq.write_table(history(10).drop_columns(["label"]), tmp_path / "plain.parquet")
    message = fault(
        "--transactions", tmp_path / "plain.parquet", "--output", tmp_path / "o", "--merchant-labels"
    )
    assert message == "the history has no column 'label'; give --labels"


@pytest.mark.unit
def test_the_handbooks_columns_are_recognised(tmp_path: Path) -> None:
    table = pa.table(
        {
            "TRANSACTION_ID": [0, 1],
            "TX_DATETIME": pa.array([NOW, NOW + 60_000], pa.timestamp("ms")).cast(pa.timestamp("ns")),
            "CUSTOMER_ID": [5, 5],
            "TERMINAL_ID": [1, 1],
            "TX_AMOUNT": [57.16, 146.0],
            "TX_FRAUD": [0, 1],
        }
    )
    output = run(tmp_path, table)
    assert output["card_id"].to_pylist() == ["c-5", "c-5"]
    assert output["label"].to_pylist() == [0, 1]
    assert output["count_5m"].to_pylist() == [1, 2]


@pytest.mark.unit
def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    table, parts = history(300), tmp_path / "parts"
    parts.mkdir()
    pq.write_table(table.slice(0, 100), parts / "a.parquet")
    pq.write_table(table.slice(100), parts / "b.parquet")
    arguments = ["--transactions", str(parts), "--output", str(tmp_path / "out.parquet")]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    result = pq.read_table(tmp_path / "out.parquet")
    assert result["row"].to_pylist() == list(range(300))
    assert bits(result) == training_set.build(table).tobytes()


@pytest.mark.unit
def test_each_mistake_has_a_message_of_one_line(tmp_path: Path) -> None:
    good, output = tmp_path / "good.parquet", tmp_path / "out.parquet"
    pq.write_table(history(10), good)
    options = ("--output", output, "--transactions")
    (tmp_path / "text.parquet").write_text("no parquet")
    pq.write_table(history(10).drop_columns(["amount", "country"]), tmp_path / "narrow.parquet")
    pq.write_table(history(0), tmp_path / "empty.parquet")
    assert "no file" in fault(*options, tmp_path / "absent.parquet")
    assert "cannot be read as parquet" in fault(*options, tmp_path / "text.parquet")
    assert "has no column amount, country" in fault(*options, tmp_path / "narrow.parquet")
    assert "holds no rows" in fault(*options, tmp_path / "empty.parquet")
    (tmp_path / "void").mkdir()
    assert "holds no *.parquet" in fault(*options, tmp_path / "void")
    (tmp_path / "mixed").mkdir()
    for first, name in enumerate(("a", "b")):
        table = history(20).slice(10 * first, 10)
        pq.write_table(table.drop_columns(["label"] * first), tmp_path / "mixed" / f"{name}.parquet")
    text = f"only some files have a column 'label', and {tmp_path / 'mixed' / 'b.parquet'} has none"
    assert text in fault(*options, tmp_path / "mixed")
    assert text in fault(*options, tmp_path / "mixed", "--spark")
    assert "no file" in fault(*options, good, "--profiles", tmp_path / "absent.parquet")
    assert "no column 'transaction_id'" in fault(*options, good, "--labels", _written(profiles(), tmp_path))
    assert "no directory" in fault("--output", tmp_path / "no" / "out.parquet", "--transactions", good)
    assert not output.exists()
    assert not list(tmp_path.glob("*.part"))
    output.write_text("mine")
    assert "exists; give another name, or --force" in fault(*options, good)
    assert output.read_text() == "mine"


def _written(table: pa.Table, directory: Path) -> Path:
    pq.write_table(table, directory / "other.parquet")
    return directory / "other.parquet"


@pytest.mark.unit
def test_a_failed_run_leaves_the_old_output_unchanged(tmp_path: Path) -> None:
    output, bad = tmp_path / "out.parquet", tmp_path / "bad.parquet"
    output.write_text("mine")
    amounts = [1.0] * 149_999 + [-1.0]
    pq.write_table(history(150_000).drop_columns(["amount"]).append_column("amount", pa.array(amounts)), bad)
    message = fault("--transactions", bad, "--output", output, "--force")
    assert message.startswith("row 149999: amount -1.0")
    assert output.read_text() == "mine"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.integration
@pytest.mark.parametrize("more", [("--merchant-labels", "--label-delay-days", "2"), ()][: 1 + THOROUGH])
def test_spark_gives_the_same_bits(tmp_path: Path, more: tuple[str, ...]) -> None:
    """The input is shuffled, with all oddities of `history`, several row groups, labels and profiles."""
    table = history(6_000).take(np.random.default_rng(0).permutation(6_000))
    pq.write_table(reports(table), tmp_path / "labels.parquet")
    pq.write_table(profiles(), tmp_path / "profiles.parquet")
    options = [*(f"--{what}={tmp_path / what}.parquet" for what in ("labels", "profiles")), *more]
    here = run(tmp_path, table, *options, name="here.parquet")
    there = run(tmp_path, table, *options, "--spark", "--master", "local[3]", name="there.parquet")
    assert len(list((tmp_path / "there.parquet").glob("part-*.parquet"))) == 3
    here, there = (result.sort_by("row") for result in (here, there))
    assert there.schema.equals(here.schema, check_metadata=True)
    features = ALL_NAMES if more else NAMES
    assert bits(there, features) == bits(here, features)
    names = ["row", "transaction_id", "card_id", "event_time", "arrival_time", "outcome", "label"]
    assert there.select(names).to_pylist() == here.select(names).to_pylist()


@pytest.mark.integration
def test_an_error_on_spark_has_a_message_of_one_line(tmp_path: Path) -> None:
    bad = history(100).drop_columns(["amount"]).append_column("amount", pa.array([1.0] * 99 + [-1.0]))
    pq.write_table(bad, tmp_path / "bad.parquet")
    message = fault(
        "--transactions", tmp_path / "bad.parquet", "--output", tmp_path / "out.parquet", "--spark"
    )
    assert message.startswith("row 99: amount -1.0 is not allowed")
    assert not (tmp_path / "out.parquet").exists()
