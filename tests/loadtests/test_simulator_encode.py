"""The vectorised JSON encoder: its values parse to what it was given; records damaged on purpose."""

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadtests.simulator import tokens
from loadtests.simulator.disturbances import MALFORMED, NAMES, Disturbances
from loadtests.simulator.encode import OPTIONAL, REQUIRED, encode
from loadtests.simulator.malformed import KINDS
from loadtests.simulator.transactions import Stream
from loadtests.simulator.world import World
from streaming_job.contracts import Contract, validate
from streaming_job.decode import strict

pytestmark = pytest.mark.unit

SCHEMA = pa.schema(
    [
        (name, {"amount": pa.float64(), "event_time": pa.int64()}.get(name, pa.string()))
        for name in (*REQUIRED, *OPTIONAL)
    ]
)

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
records = st.fixed_dictionaries(
    {name: text for name in REQUIRED if name not in ("amount", "event_time")}
    | {
        "amount": st.floats(allow_nan=False, allow_infinity=False),
        "event_time": st.integers(-(2**63), 2**63 - 1),
        "channel": st.none() | text,
        "mcc": st.none() | text,
    }
)
ODD = {
    "transaction_id": 'a"\\\n\x00\x1f\x7f',
    "card_id": "",
    "merchant_id": "größer\u2028😀",
    "amount": 5e-324,
    "currency": "\t",
    "country": "/",
    "event_time": 0,
    "channel": None,
    "mcc": "",
}


@given(st.lists(records, min_size=1, max_size=8))
@example([ODD])
def test_every_value_parses_to_the_same_content(rows: list[dict[str, Any]]) -> None:
    values = encode(pa.Table.from_pylist(rows, schema=SCHEMA))
    for row, value in zip(rows, values, strict=True):
        wanted = {name: content for name, content in row.items() if content is not None}
        assert orjson.loads(value) == wanted
        assert json.loads(value) == wanted


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_amounts_keep_every_bit(amounts: list[float]) -> None:
    rows = [ODD | {"amount": amount} for amount in amounts]
    values = encode(pa.Table.from_pylist(rows, schema=SCHEMA))
    assert [float(orjson.loads(value)["amount"]).hex() for value in values] == [a.hex() for a in amounts]


def test_numbers_outside_json_are_written_as_by_python() -> None:
    amounts = [float("nan"), float("inf"), float("-inf"), 1.5]
    values = encode(pa.Table.from_pylist([ODD | {"amount": amount} for amount in amounts], schema=SCHEMA))
    assert [repr(json.loads(value)["amount"]) for value in values] == ["nan", "inf", "-inf", "1.5"]


def test_dictionary_columns_and_absent_optional_ones_are_accepted() -> None:
    table = pa.Table.from_pylist([ODD] * 3, schema=SCHEMA).drop_columns(["channel", "mcc"])
    table = table.set_column(4, "currency", pa.array(["EUR", "USD", "EUR"]).dictionary_encode())
    assert [orjson.loads(value)["currency"] for value in encode(table)] == ["EUR", "USD", "EUR"]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_tokens_equal_python_formatting(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.uint64)
    assert tokens.hexadecimal(array).to_pylist() == [f"{n:016x}" for n in numbers]
    small = (array % np.uint64(10**8)).astype(np.int64)
    assert tokens.numbered("card-", small, 8).to_pylist() == [f"card-{n:08d}" for n in small.tolist()]


def test_encoding_without_checks_gives_the_same_bytes() -> None:
    batch = next(Stream(World.create(3, cards=500, merchants=50), 100.0, 0).blocks(events=5_000))
    assert encode(batch.table, trusted=True) == encode(batch.table)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", [0, 1, 2, 3, 4, 5, 6, 99, 2**63 - 1])
def test_a_malformed_record_is_rejected_for_its_reason(kind: str, choice: int) -> None:
    batch = next(Stream(World.create(3, cards=500, merchants=50), 100.0, 0).blocks(events=1))
    clean = batch.table.select([*REQUIRED, *OPTIONAL]).to_pylist()[0]
    _, reason, spoil = KINDS[kind]
    value = spoil(clean, choice)
    if reason is None:
        assert value is not None
        validate(Contract.TRANSACTION, json.loads(value))
        strict.transaction(value)
    else:
        with pytest.raises(strict.Rejected) as rejected:
            strict.transaction(value)
        assert rejected.value.reason is reason


def test_encode_damages_exactly_the_rows_labelled_malformed() -> None:
    stream = Stream(
        World.create(3, cards=500, merchants=50), 100.0, 0, disturbances=Disturbances(malformed=0.2)
    )
    batch = next(stream.blocks())
    keys, values = batch.encode()
    clean = encode(batch.table)
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        assert key == batch.table["card_id"][row].as_py().encode()
        assert (value == clean[row]) == (batch.disturbance[row] < MALFORMED), NAMES[batch.disturbance[row]]
