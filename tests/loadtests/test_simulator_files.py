"""Files of transactions: the simulator writes them, and replays its own and those of other sources."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from feature_store.catalogue import DAY_MS
from feature_store.errors import FraudError
from feature_store.training.columns import TrainingSetError
from loadtests.simulator import parquet
from loadtests.simulator.chargebacks import Chargebacks
from loadtests.simulator.commands import app
from loadtests.simulator.disturbances import Disturbances
from loadtests.simulator.parquet import OutputError
from loadtests.simulator.replay import Replay
from loadtests.simulator.timeline import timeline
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.contracts import Contract, validate
from streaming_job.contracts.topics import Topics

pytestmark = pytest.mark.unit

TOPICS = Topics()
HANDBOOK = {
    "TRANSACTION_ID": [10, 11, 12],
    "TX_DATETIME": [datetime(2018, 4, 1, 0, 0, 31), datetime(2018, 4, 1, 0, 2, 10), datetime(2018, 4, 2)],
    "CUSTOMER_ID": [596, 4961, 2],
    "TERMINAL_ID": [3156, 3412, 1365],
    "TX_AMOUNT": [57.16, 81.51, 146.0],
    "TX_FRAUD": [0, 1, 0],
    "TX_FRAUD_SCENARIO": [0, 2, 0],
}
START = 1_790_000_000_000
CONTRACT: dict[str, list[Any]] = {
    "transaction_id": ["a", "b", "c"],
    "card_id": ["x", 'y"', "x"],
    "merchant_id": ["m", "m", "n"],
    "amount": [1.0, 2.5, 3.0],
    "currency": ["EUR", "EUR", "USD"],
    "country": ["DE", "FR", "US"],
    "event_time": [START + 1_000, START + 2_000, START + 2_000],
}


def written(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_a_file_holds_contract_and_truth(tmp_path: Path) -> None:
    world = World.create(5, cards=500, merchants=100)
    stream = Stream(world, 100.0, 1_790_000_000_000, disturbances=Disturbances(malformed=0.1))
    rows, left_out = parquet.write(stream.blocks(events=10_000), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert rows == len(table)
    assert rows + left_out == 10_000
    assert left_out == pytest.approx(1_000, rel=0.2)
    assert table.column_names[-4:] == ["arrival_time", "label", "scenario", "disturbance"]
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]
    clean = table.filter(pa.compute.equal(table["disturbance"], "")).drop_columns(
        ["arrival_time", "label", "scenario", "disturbance"]
    )
    for record in clean.slice(0, 300).to_pylist():
        validate(Contract.TRANSACTION, record)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    world = World.create(5, cards=500, merchants=100)
    with pytest.raises(OutputError, match="cannot write"):
        parquet.write(Stream(world, 100.0, 0).blocks(events=10), tmp_path / "missing" / "a.parquet")
    with pytest.raises(OutputError, match="no events"):
        parquet.write([], tmp_path / "a.parquet")


def test_a_simulated_file_replays_as_it_was_streamed(tmp_path: Path) -> None:
    world = World.create(5, cards=500, merchants=100)
    stream = Stream(world, 100.0, 1_790_000_000_000, disturbances=Disturbances(malformed=0))
    parquet.write(stream.blocks(events=20_000), tmp_path / "a.parquet")
    live = [pair for batch in stream.blocks(events=20_000) for pair in zip(*batch.encode(), strict=True)]
    replay = [
        pair for b in Replay(tmp_path / "a.parquet").batches() for pair in zip(*b.encode(), strict=True)
    ]
    assert replay == live


def test_the_handbook_becomes_contract_records_and_labels_after_seven_days(tmp_path: Path) -> None:
    source = Replay(written(tmp_path / "h.parquet", HANDBOOK))
    first, *pieces = timeline(source.batches(), Chargebacks(delay_ms=7 * DAY_MS), TOPICS, drain=True)
    values = [orjson.loads(value or b"") for value in first.values]
    for value in values:
        validate(Contract.TRANSACTION, value)
    assert values[1] == {
        "transaction_id": "h-11",
        "card_id": "c-4961",
        "merchant_id": "t-3412",
        "amount": 81.51,
        "currency": "EUR",
        "country": "ZZ",
        "event_time": 1_522_540_930_000,
    }
    assert first.keys == [b"c-596", b"c-4961", b"c-2"]
    assert first.at.tolist() == [value["event_time"] for value in values]
    (labels,) = pieces
    assert labels.topic == TOPICS.chargebacks
    assert labels.at.tolist() == [1_522_540_930_000 + 7 * DAY_MS]
    report = orjson.loads(labels.values[0] or b"")
    validate(Contract.CHARGEBACK, report)
    assert (report["transaction_id"], report["label"]) == ("h-11", "fraud")


def test_a_contract_file_replays_in_order_of_its_arrival_times(tmp_path: Path) -> None:
    columns = CONTRACT | {
        "event_time": [START + time for time in (5_000, 2_000, 9_000)],
        "arrival_time": [START + time for time in (6_000, 7_000, 9_000)],
    }
    (batch,) = Replay(written(tmp_path / "c.parquet", columns)).batches()
    assert (batch.arrival - START).tolist() == [6_000, 7_000, 9_000]
    keys, values = batch.encode()
    assert keys == [b"x", b'y"', b"x"]
    assert [orjson.loads(value or b"")["event_time"] - START for value in values] == [5_000, 2_000, 9_000]


@pytest.mark.parametrize(
    "labels", [[0, 1, 0], [False, True, False], ["genuine", "fraud", "genuine"], pa.array([0, 1, None])]
)
def test_labels_may_be_numbers_booleans_or_words(tmp_path: Path, labels: Any) -> None:
    source = Replay(written(tmp_path / "c.parquet", CONTRACT | {"label": labels}))
    pieces = list(timeline(source.batches(), Chargebacks(delay_ms=10), TOPICS, drain=True))
    result = [orjson.loads(v or b"") for p in pieces if p.topic == TOPICS.chargebacks for v in p.values]
    assert [(report["transaction_id"], report["label"]) for report in result] == [("b", "fraud")]


def test_timestamps_and_a_limit_of_events_are_accepted(tmp_path: Path) -> None:
    times = pa.array(START // 1_000 + np.array([1, 2, 3]), pa.timestamp("s"))
    source = Replay(written(tmp_path / "c.parquet", CONTRACT | {"event_time": times}))
    assert [(batch.arrival - START).tolist() for batch in source.batches(events=2)] == [[1_000, 2_000]]
    assert source.first_ms == START + 1_000
    assert source.rows == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1]}, "lacks the columns transaction_id"),
        ({k: v for k, v in CONTRACT.items() if k != "amount"}, "lacks the columns amount"),
        ({k: v for k, v in HANDBOOK.items() if k != "TX_AMOUNT"}, "lacks the columns TX_AMOUNT"),
        (CONTRACT | {"event_time": [START + 1, START + 3, START + 2]}, "back in time at row 2"),
        (CONTRACT | {"amount": ["a", "b", "c"]}, "amount, string, is not double"),
        (CONTRACT | {"card_id": ["a", None, "c"]}, "nulls in card_id"),
        (CONTRACT | {"arrival_time": [START, None, START]}, "nulls in arrival_time"),
        (CONTRACT | {"label": [0, 1, 2]}, "column label holds 2; give fraud/genuine, 1/0"),
        (CONTRACT | {"label": ["fraud", "perhaps", "genuine"]}, "column label holds 'perhaps'"),
        (HANDBOOK | {"TX_DATETIME": HANDBOOK["TX_DATETIME"][::-1]}, "sort it by TX_DATETIME"),
        (HANDBOOK | {"TX_DATETIME": [1, 2, 3]}, "TX_DATETIME is int64"),
        (HANDBOOK | {"TX_FRAUD": [0, 1, 2]}, "column TX_FRAUD holds 2"),
        ({name: pa.array([], pa.string()) for name in CONTRACT}, "no rows"),
    ],
)
def test_a_file_in_another_format_is_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(FraudError, match=message):
        list(Replay(written(tmp_path / "x.parquet", columns)).batches())


def test_no_file_and_no_parquet_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingSetError, match="no file"):
        Replay(tmp_path / "none.parquet")
    (tmp_path / "x.parquet").write_text("not parquet at all")
    with pytest.raises(TrainingSetError, match="as parquet"):
        Replay(tmp_path / "x.parquet")


def test_the_command_writes_the_same_file_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        arguments = [
            "--output",
            str(tmp_path / f"{name}.parquet"),
            "--for",
            "40s",
            "--cards",
            "1000",
            "--seed",
            "3",
        ]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert "wrote " in result.output
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no destination"),
        (["--output", "x.parquet"], "needs an end"),
        (["--output", "x.parquet", "--for", "soon"], "is not a duration"),
        (["--speed", "fast"], "neither a positive number nor max"),
        (["--replay", "none.parquet", "--bootstrap-servers", "localhost:1"], "no file"),
        (["--replay", "none.parquet", "--output", "x.parquet"], "leave out --output"),
    ],
)
def test_the_command_names_the_mistake(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"FRAUD_BOOTSTRAP_SERVERS": ""})
    assert isinstance(result.exception, FraudError)
    assert message in str(result.exception)


def test_an_interrupted_stream_leaves_no_file(tmp_path: Path) -> None:
    def interrupt(_: int) -> None:
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    stream = Stream(World.create(5, cards=500, merchants=100), 100.0, 0)
    with pytest.raises(KeyboardInterrupt):
        parquet.write(stream.blocks(events=10), tmp_path / "a.parquet", interrupt)
    assert not list(tmp_path.iterdir())
