"""The types of columns in files: every reader takes and refuses the same ones."""

import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from feature_store.commands import app
from feature_store.errors import FraudError
from feature_store.layout import UNITS_PER_CURRENCY
from feature_store.training.columns import TrainingSetError
from feature_store.training.parquet_files import read_table
from feature_store.training.training_files import Rows
from feature_store.training.training_run import Task, in_order
from feature_store.training.training_set import build
from feature_store.training.transaction_files import TransactionFiles
from loadtests.simulator.replay import Replay
from models.pipeline import outcomes
from streaming_job.contracts import ContractError
from streaming_job.labels import commands as label_commands
from streaming_job.labels import ledger

pytestmark = pytest.mark.unit
T = 1_767_225_600_000
"""1 January 2026 in ms."""
UUIDS = [uuid.UUID(int=number) for number in (0x9E3779B97F4A7C15F39CC0605CEDC834, 7, 8)]
CONTRACT: dict[str, Any] = {
    "transaction_id": ["t-1", "t-2", "t-3"],
    "card_id": ["c-1", "c-2", "c-1"],
    "merchant_id": ["m-1", "m-1", "m-2"],
    "amount": [10.0, 11.0, 12.0],
    "currency": ["EUR", "EUR", "EUR"],
    "country": ["DE", "DE", "FR"],
    "event_time": [T, T + 60_000, T + 120_000],
    "label": [0, 1, 0],
}
LABEL: dict[str, Any] = {
    "transaction_id": ["t-1", "t-2", "t-3"],
    "card_id": ["c-1", "c-2", "c-1"],
    "kind": ["chargeback", "chargeback", "reversal"],
    "source": ["bank", "bank", "bank"],
    "maturity": ["final", "final", "final"],
    "occurred_at": [T, T + 60_000, T + 120_000],
}


def training(path: Path) -> dict[str, list[Any]]:
    """What `fraud features` computes features from."""
    rows = Rows.concat(list(in_order(Task(TransactionFiles(path)), None)))
    return {
        "transaction_id": rows.transaction_id.to_pylist(),
        "card_id": rows.card_id.to_pylist(),
        "event_time": rows.records["time"].tolist(),
        "amount": (rows.records["amount"] / UNITS_PER_CURRENCY).tolist(),
        "label": None if rows.label is None else rows.label.tolist(),
    }


def models(path: Path) -> dict[str, list[Any]]:
    """What `fraud models train` learns from."""
    table = TransactionFiles(path).table()
    build(table)
    names = ("transaction_id", "card_id", "event_time", "amount")
    labels = outcomes(table, None).astype(int).tolist() if "label" in table.column_names else None
    return {**{name: table[name].to_pylist() for name in names}, "label": labels}


def replay(path: Path) -> dict[str, list[Any]]:
    """What `fraud simulate --replay` and the demo send."""
    (batch,) = Replay(path).batches()
    names = ("transaction_id", "card_id", "event_time", "amount")
    batch.encode()
    labels = None
    if "label" in batch.table.column_names:
        labels = [value or 0 for value in batch.table["label"].to_pylist()]
    return {**{name: batch.table[name].to_pylist() for name in names}, "label": labels}


def imported(path: Path) -> dict[str, list[Any]]:
    """What `fraud labels add --file` writes."""
    records = ledger.labels(label_commands.rows(path))
    return {name: [record[name] for record in records] for name in LABEL}


READERS: list[Callable[[Path], dict[str, list[Any]]]] = [training, models, replay]
ODD: dict[str, tuple[str, pa.Array, list[Any]]] = {
    "ids as floats": ("card_id", pa.array([4e15 + 304, 5.0, 6.0]), ["4000000000000304", "5", "6"]),
    "ids as integers": ("card_id", pa.array([1, 2, 3]), ["1", "2", "3"]),
    "ids as decimals": ("card_id", pa.array(map(Decimal, "123"), pa.decimal128(20, 0)), ["1", "2", "3"]),
    "ids with a scale": ("card_id", pa.array(map(Decimal, "123"), pa.decimal128(20, 2)), ["1", "2", "3"]),
    "ids as UUID": ("transaction_id", pa.array([u.bytes for u in UUIDS], pa.uuid()), list(map(str, UUIDS))),
    "ids as large text": ("card_id", pa.array(["a", "b", "c"], pa.large_string()), ["a", "b", "c"]),
    "ids as binary": ("card_id", pa.array([b"a", b"b", b"c"]), ["a", "b", "c"]),
    "ids as dictionary": ("card_id", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    "times as floats": ("event_time", pa.array([T, T + 1, T + 2.0]), [T, T + 1, T + 2]),
    "times as decimals": ("event_time", pa.array(map(Decimal, (T, T, T)), pa.decimal128(20)), [T, T, T]),
    "times in us": ("event_time", pa.array([T * 1_000 + 999] * 3, pa.timestamp("us", "UTC")), [T, T, T]),
    "times in ns": ("event_time", pa.array([T * 1_000_000] * 3, pa.timestamp("ns")), [T, T, T]),
    "amounts as decimals": ("amount", pa.array(map(Decimal, "123"), pa.decimal128(9, 2)), [1.0, 2.0, 3.0]),
    "amounts as integers": ("amount", pa.array([1, 2, 3]), [1.0, 2.0, 3.0]),
    "labels as floats with gaps": ("label", pa.array([0.0, 1.0, None]), [0, 1, 0]),
    "labels as floats with NaN": ("label", pa.array([0.0, 1.0, np.nan]), [0, 1, 0]),
    "labels as words": ("label", pa.array(["genuine", "fraud", None]), [0, 1, 0]),
    "labels as large words": ("label", pa.array(["genuine", "fraud", None], pa.large_string()), [0, 1, 0]),
    "labels as booleans": ("label", pa.array([False, True, None]), [0, 1, 0]),
    "labels as decimals": ("label", pa.array(map(Decimal, "010"), pa.decimal128(1)), [0, 1, 0]),
    "labels as dictionary": ("label", pa.array(["genuine", "fraud", None]).dictionary_encode(), [0, 1, 0]),
}  # fmt: skip
"""Name -> column, its values as tools write them, and what they mean."""
SECONDS = "in January 1970; perhaps it is in seconds; give ms"
REFUSED: dict[str, tuple[str, pa.Array, str]] = {
    "ids with fractions": ("card_id", pa.array([1.5, 2, 3]), "column card_id, double, is not int64"),
    "ids with lost digits": ("card_id", pa.array([2.0**60, 2, 3]), "card_id is double and holds 11529215"),
    "ids as bytes": ("card_id", pa.array([b"\xff", b"b", b"c"]), "card_id, binary, is not string"),
    "ids as times": ("card_id", pa.array([1, 2, 3], pa.timestamp("s")), "column card_id is timestamp"),
    "times as text": ("event_time", pa.array(["31/01/2026 10:00"] * 3), "event_time is string; give ms"),
    "times as numbers in text": ("event_time", pa.array([str(T)] * 3), "event_time is string; give ms"),
    "times as dates": ("event_time", pa.array([20_000] * 3, pa.date32()), "event_time is date32"),
    "times in seconds": ("event_time", pa.array([T // 1_000] * 3), SECONDS),
    "seconds as floats": ("event_time", pa.array([T / 1_000] * 3), SECONDS),
    "seconds read as ns": ("event_time", pa.array([T // 1_000] * 3, pa.timestamp("ns")), SECONDS),
    "times in integer us": ("event_time", pa.array([T * 1_000] * 3), "in microseconds or nanoseconds"),
    "times in integer ns": ("event_time", pa.array([T * 1_000_000] * 3), "in microseconds or nanoseconds"),
    "times before 1970": ("event_time", pa.array([-5] * 3), "is before 1970"),
    "amounts as words": ("amount", pa.array(["much"] * 3), "amount, string, is not double"),
    "amounts as booleans": ("amount", pa.array([True] * 3), "amount is bool; write it as numbers"),
    "other labels": ("label", pa.array([0, 1, 2]), "label holds 2; give fraud/genuine"),
    "labels as lists": ("label", pa.array([[0], [1], [0]]), "label is list"),
    "ids with gaps": ("card_id", pa.array([1.0, None, 3.0]), "card_id"),
}  # fmt: skip


def written(directory: Path, table: pa.Table, name: str = "t.parquet") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, directory / name)
    return directory / name


def with_column(columns: dict[str, Any], name: str, values: pa.Array) -> pa.Table:
    return pa.table({**columns, name: values})


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("what", ODD)
def test_every_reader_takes_the_types_that_tools_write(
    tmp_path: Path, what: str, reader: Callable[[Path], dict[str, list[Any]]]
) -> None:
    name, values, meaning = ODD[what]
    result = reader(written(tmp_path, with_column(CONTRACT, name, values)))
    assert result[name] == meaning


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("what", REFUSED)
def test_every_reader_refuses_what_has_several_meanings(
    tmp_path: Path, what: str, reader: Callable[[Path], dict[str, list[Any]]]
) -> None:
    name, values, message = REFUSED[what]
    with pytest.raises(FraudError, match=message) as fault:
        reader(written(tmp_path, with_column(CONTRACT, name, values)))
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    "what", [what for what, odd in ODD.items() if odd[0] in ("card_id", "transaction_id")]
)
def test_imported_labels_have_the_ids_of_the_transactions(tmp_path: Path, what: str) -> None:
    name, values, meaning = ODD[what]
    assert imported(written(tmp_path, with_column(LABEL, name, values)))[name] == meaning


@pytest.mark.parametrize("what", [what for what, odd in ODD.items() if odd[0] == "event_time"])
def test_imported_labels_have_integer_times(tmp_path: Path, what: str) -> None:
    _, values, meaning = ODD[what]
    result = imported(written(tmp_path, with_column(LABEL, "occurred_at", values)))["occurred_at"]
    assert result == meaning
    assert {type(value) for value in result} == {int}


@pytest.mark.parametrize(
    "what", [what for what, odd in REFUSED.items() if odd[0] in ("card_id", "event_time")]
)
def test_labels_of_several_meanings_are_not_imported(tmp_path: Path, what: str) -> None:
    name, values, message = REFUSED[what]
    name = name.replace("event_time", "occurred_at")
    with pytest.raises(FraudError, match=message.replace("event_time", "occurred_at")):
        imported(written(tmp_path, with_column(LABEL, name, values)))


@pytest.mark.parametrize("reader", [*READERS, imported], ids=lambda reader: reader.__name__)
def test_a_column_that_is_there_twice_is_named(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    columns = LABEL if reader is imported else CONTRACT
    table = pa.table(columns).append_column("card_id", pa.array(["x", "y", "z"]))
    with pytest.raises(FraudError, match=r"t.parquet has the column card_id 2 times; keep one of them"):
        reader(written(tmp_path, table))


@pytest.mark.parametrize("reader", [*READERS, imported], ids=lambda reader: reader.__name__)
def test_files_that_are_no_parquet_are_named(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    (tmp_path / "t.parquet").touch()
    with pytest.raises(TrainingSetError, match=r"t\.parquet cannot be read as parquet"):
        reader(tmp_path / "t.parquet")
    with pytest.raises(TrainingSetError, match="no file"):
        reader(tmp_path / "none.parquet")


def test_files_of_all_sub_directories_are_read(tmp_path: Path) -> None:
    table, history = pa.table(CONTRACT), tmp_path / "history"
    written(history, table.slice(0, 1), "month1.parquet")
    written(history / "month=2", table.slice(1, 1), "part-0.parquet")
    written(history / "month=3" / "day=1", table.slice(2, 1), "part-0.parquet")
    # what Spark leaves behind is no data
    written(history / "_temporary" / "0", table, "part-0.parquet")
    written(history / ".staging", table, "part-0.parquet")
    written(history, table.slice(0, 0), "month9.parquet")
    for name in ("_SUCCESS", ".part-0.parquet.crc"):
        (history / name).touch()
    assert training(history)["transaction_id"] == CONTRACT["transaction_id"]
    assert read_table(history).select(["card_id"]).to_pydict() == {"card_id": CONTRACT["card_id"]}


@pytest.mark.parametrize("name", ["more.pq", "more.PARQUET", "more.csv", "sub/more.parquet.gz"])
def test_a_file_that_would_be_left_out_is_named(tmp_path: Path, name: str) -> None:
    written(tmp_path, pa.table(CONTRACT))
    written((tmp_path / name).parent, pa.table(CONTRACT), Path(name).name)
    with pytest.raises(TrainingSetError, match=f"{name} is no \\*.parquet, and would be left out"):
        TransactionFiles(tmp_path)


def test_types_may_differ_between_the_files_of_a_directory(tmp_path: Path) -> None:
    for number, ids in enumerate((pa.array([1.0]), pa.array([2]), pa.array(["3"], pa.large_string()))):
        row = pa.table({name: values[:1] for name, values in LABEL.items()})
        written(tmp_path, row.set_column(1, "card_id", ids), f"{number}.parquet")
    assert imported(tmp_path)["card_id"] == ["1", "2", "3"]


def features(directory: Path, transactions: pa.Table, labels: pa.Table) -> Any:
    arguments = ["--transactions", str(written(directory, transactions)), "--output", str(directory / "out")]
    labels_file = str(written(directory, labels, "labels.parquet"))
    return CliRunner().invoke(app, [*arguments, "--labels", labels_file, "--force"])


def test_ids_of_different_types_match(tmp_path: Path) -> None:
    transactions = with_column(CONTRACT, "card_id", pa.array([4e15 + 301, 4e15 + 304, 4e15 + 301]))
    labels = pa.table({"transaction_id": ["t-2"], "card_id": [4_000_000_000_000_304], "label": ["fraud"]})
    done = features(tmp_path, transactions, labels)
    assert done.exit_code == 0, done.output
    output = pq.read_table(tmp_path / "out")
    assert output["label"].to_pylist() == [0, 1, 0]
    assert output["card_id"].to_pylist()[1] == "4000000000000304"
    assert "note" not in done.stderr
    assert outcomes(TransactionFiles(tmp_path / "t.parquet").table(), labels).tolist() == [False, True, False]


def test_labels_of_no_transaction_are_said(tmp_path: Path) -> None:
    labels = pa.table(
        {"transaction_id": ["t-2", "t-9"], "card_id": ["c-2", "c-2"], "label": ["fraud", "fraud"]}
    )
    done = features(tmp_path, pa.table(CONTRACT), labels)
    assert done.exit_code == 0
    assert "1 of 2 labelled transactions are not in the transactions" in done.stderr
    with pytest.raises(FraudError, match="none of the 1 labelled transactions is among the transactions"):
        outcomes(pa.table(CONTRACT), labels.slice(1))


@pytest.mark.parametrize(
    "reported_at", [["31/01/2026 10:00", "01/02/2026 10:00"], ["1767225660000", "1767225660001"]]
)
def test_reports_are_not_ordered_by_text(tmp_path: Path, reported_at: list[str]) -> None:
    labels = pa.table(
        {
            "transaction_id": ["t-1", "t-1"],
            "card_id": ["c-1", "c-1"],
            "label": ["fraud", "genuine"],
            "reported_at": reported_at,
        }
    )
    done = features(tmp_path, pa.table(CONTRACT), labels)
    assert "column reported_at is string; give ms since 1970-01-01 UTC" in str(done.exception)


def test_a_label_without_its_kind_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FraudError, match=r"nothing was written; .*t.parquet has no column kind; see docs"):
        imported(written(tmp_path, pa.table(LABEL).drop_columns(["kind"])))
    with pytest.raises(FraudError, match=r"row 1: not a label.v1: .*'kind' is a required property"):
        imported(written(tmp_path, with_column(LABEL, "kind", pa.array(["chargeback", None, "reversal"]))))


def test_writers_check_integers_as_the_job_does() -> None:
    row = {name: values[0] for name, values in LABEL.items()}
    with pytest.raises(ContractError, match=r"occurred_at.*is not of type 'integer'"):
        ledger.label({**row, "occurred_at": float(T)})
