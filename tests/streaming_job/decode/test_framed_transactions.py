"""Framed transactions: what is in a frame is decided as if it had come without, or refused with its reason.

Each record is also judged by the oracle, whose reader of Avro is its own.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from harness.framed_records import DECIMAL, JSON_SCHEMA, RICH, avro, avro_schema, event, frame
from harness.job_world import dead_letters
from harness.log_world import DAY
from harness.random_world import random_world
from harness.raw_records import (
    GOOD,
    KEY_GROUPS,
    LIMITS,
    NOW,
    PARTITION,
    alone,
    mutated,
    record,
    records,
    seeds,
    together,
)
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from loadtests.oracle import AcceptanceRules, Record, SchemaLog
from loadtests.oracle.decode import RefusedError, read_transaction
from streaming_job.contracts import ContractError, Reason
from streaming_job.contracts.record_schemas import read
from streaming_job.decode import transactions
from streaming_job.decode.framed import RecordSchemas
from streaming_job.decode.strict import Rejected

pytestmark = pytest.mark.unit

PLAIN, RICH_ID, JSON_ID = 1, 2, 2**31 - 1
EVENTS = [event(PLAIN, avro_schema()), event(RICH_ID, RICH), event(JSON_ID, JSON_SCHEMA, "json")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schemas(*events: bytes, arrival: int = NOW) -> RecordSchemas:
    found = RecordSchemas()
    for each in events or EVENTS:
        found.add(arrival, each)
    return found


def verdicts(values: list[bytes | None], arrival: int = NOW) -> list[Any]:
    """The outcome of each record, as `together` describes it."""
    return together(values, [arrival] * len(values), schemas())


def by_oracle(value: bytes, arrival: int = NOW) -> Reason | None:
    """The reason for which the oracle refuses a record, with the schemas EVENTS."""
    log = SchemaLog()
    assert not log.read(Record("record-schemas", 0, at, NOW, None, each) for at, each in enumerate(EVENTS))
    return refusal(value, arrival, log)


def refusal(value: bytes, arrival: int, log: SchemaLog) -> Reason | None:
    rules = AcceptanceRules(
        LIMITS.lateness_ms, LIMITS.skew_ms, KEY_GROUPS.partitions, KEY_GROUPS.partitioner, row=log.row
    )
    try:
        read_transaction(Record("transactions", PARTITION, 0, arrival, b"", value), rules)
    except RefusedError as fault:
        return fault.reason
    return None


def reason(verdict: Any) -> Reason | None:
    return verdict if isinstance(verdict, Reason) else None


@examples(100)
@given(st.randoms(use_true_random=False))
def test_framed_json_is_decided_like_plain_json(rng: random.Random) -> None:
    """Broken records included: whatever a producer sends, the frame changes nothing."""
    plain = [seeds(rng) for _ in range(4)]
    plain = [
        value for value in (*plain, *(mutated(rng, value, plain[0]) for value in plain)) if value[:1] != b"\0"
    ]
    framed = [frame(JSON_ID, value) for value in plain]
    assert verdicts(framed) == [alone(value, NOW) for value in plain]
    assert [reason(verdict) for verdict in verdicts(framed)] == [by_oracle(value) for value in framed]


def test_alerts_are_the_same_bytes_with_and_without_frames() -> None:
    plain, framed = random_world(7), random_world(7)
    framed.raw_schema(event(PLAIN, avro_schema()), -DAY)
    framed.raw_schema(event(JSON_ID, JSON_SCHEMA, "json"), -DAY)

    def in_frame(value: bytes | None) -> bytes | None:
        try:
            return avro(PLAIN, avro_schema(), json.loads(value or b""))
        except (ValueError, TypeError, KeyError, AttributeError):  # it has not all fields
            return value and frame(JSON_ID, value)

    framed.transactions = [each._replace(value=in_frame(each.value)) for each in framed.transactions]
    (one,), (other,) = plain.run(), framed.run()
    assert [alert.value for alert in one.records["fraud_alerts"]]
    for topic in ("fraud_alerts", "suppressed_alerts", "shadow_alerts"):
        assert [alert.value for alert in one.records[topic]] == [
            alert.value for alert in other.records[topic]
        ]
    assert dead_letters([one]) == dead_letters([other])


identifiers = st.sampled_from(["c-1", "", "x" * 65, "é" * 64, "\n", "4111111111111111"]) | st.text(max_size=5)
amounts = st.floats() | st.sampled_from([0.0, -0.0, 12.34, 1e9, 1e-7])
times = st.integers(NOW - 1000, NOW) | st.integers(-(2**63), 2**63 - 1)


@examples(300)
@given(identifiers, identifiers, amounts, st.sampled_from(["EUR", "eur", "EURO"]), times)
def test_an_avro_record_is_decided_like_the_json_of_its_fields(
    card: str, merchant: str, amount: float, currency: str, time: int
) -> None:
    fields = {
        **GOOD, "card_id": card, "merchant_id": merchant, "amount": amount, "currency": currency,
        "event_time": time,
    }  # fmt: skip
    framed = avro(PLAIN, avro_schema(), fields)
    (verdict,) = verdicts([framed])
    assert verdict == alone(json.dumps(fields).encode(), NOW)
    assert by_oracle(framed) == reason(verdict)


@examples(100)
@given(
    st.integers(-(10**12) + 1, 10**12 - 1), st.sampled_from([None, "m", "é"]),
    st.sampled_from(["EUR", "USD"]), st.integers(0, 10**6),
)  # fmt: skip
def test_logical_types_enums_and_unions_are_the_values_that_they_stand_for(
    cents: int, merchant: str | None, currency: str, ago: int
) -> None:
    fields = {**GOOD, "merchant_id": merchant, "currency": currency}
    terminal = {"id": b"abc", "tags": ["a", "b"], "previous": b"xyz"}
    framed = avro(
        RICH_ID,
        RICH,
        {
            **fields, "amount": Decimal(cents).scaleb(-2), "terminal": terminal,
            "event_time": EPOCH + timedelta(milliseconds=NOW - ago),
            "notes": {"a": True, "b": 0.5, "c": None, "d": 3},
        },
    )  # fmt: skip
    plain = json.dumps({**fields, "event_time": NOW - ago, "amount": "HERE"})
    (verdict,) = verdicts([framed])
    assert verdict == alone(plain.replace('"HERE"', str(Decimal(cents).scaleb(-2))).encode(), NOW)
    assert by_oracle(framed) == reason(verdict)


@examples(300)
@given(st.randoms(use_true_random=False))
def test_job_and_oracle_agree_on_damaged_avro(rng: random.Random) -> None:
    whole = avro(
        RICH_ID, RICH, {**GOOD, "amount": Decimal("12.34"), "event_time": EPOCH, "notes": {"a": None}}
    )
    payload = bytes(mutated(rng, whole[5:], rng.randbytes(20)))
    framed = [frame(rng.choice((PLAIN, RICH_ID)), payload) for _ in range(3)]
    assert [reason(verdict) for verdict in verdicts(framed)] == [by_oracle(value) for value in framed]


GOOD_AVRO = avro(PLAIN, avro_schema(), GOOD)
REFUSED = {
    "an unknown schema": (frame(7, b"{}"), Reason.UNKNOWN_SCHEMA),
    "cut off": (GOOD_AVRO[:-1], Reason.MALFORMED_AVRO),
    "one byte too many": (GOOD_AVRO + b"\0", Reason.MALFORMED_AVRO),
    "nothing after the id": (frame(PLAIN, b""), Reason.MALFORMED_AVRO),
    "no UTF-8": (GOOD_AVRO.replace(b"m-1", b"\xff\xff\xff"), Reason.MALFORMED_AVRO),
    "a string of negative length": (frame(PLAIN, b"\1" * 40), Reason.MALFORMED_AVRO),
    "a number that does not end": (frame(PLAIN, b"\xff" * 40), Reason.MALFORMED_AVRO),
    "too large": (frame(PLAIN, b"\0" * 65_532), Reason.RECORD_TOO_LARGE),
    "too large as JSON": (
        avro(PLAIN, avro_schema(), {**GOOD, "card_id": "\1" * 20_000}), Reason.RECORD_TOO_LARGE,
    ),
    "no JSON": (frame(JSON_ID, b""), Reason.EMPTY_VALUE),
    "JSON in two frames": (frame(JSON_ID, frame(JSON_ID, record())), Reason.INVALID_UTF8),
    "no room for an id": (b"\0\0\0\0", Reason.MALFORMED_JSON),
    "a null": (avro(RICH_ID, RICH, {
        **GOOD, "merchant_id": None, "amount": Decimal(1), "event_time": EPOCH}), Reason.WRONG_TYPE),
    "NaN": (avro(PLAIN, avro_schema(), {**GOOD, "amount": float("nan")}), Reason.NON_FINITE_NUMBER),
}  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_record_that_cannot_be_read_is_refused_with_its_reason(value: bytes, expected: Reason) -> None:
    good = record(transaction_id="t-2")
    assert verdicts([good, value, GOOD_AVRO, None]) == [
        alone(good, NOW), expected, alone(record(), NOW), Reason.EMPTY_VALUE,
    ]  # fmt: skip
    assert by_oracle(value) == expected


@pytest.mark.parametrize(
    ("size", "first", "expected"),
    [
        (0, b"", Reason.MALFORMED_AVRO),
        (100, b"\x7f", Reason.INVALID_VALUE),
        (100, b"\x80", Reason.NEGATIVE_AMOUNT),
        (4_000, b"\x7f", Reason.NON_FINITE_NUMBER),
        (4_000, b"\x80", Reason.NON_FINITE_NUMBER),
    ],
)
def test_a_decimal_may_be_of_any_size(size: int, first: bytes, expected: Reason) -> None:
    """A Python producer cannot write such a one: another schema writes its bytes."""
    schema = avro_schema(amount="bytes")
    unscaled = first + b"\x01" * (size - 1)
    written = avro(PLAIN, schema, {**GOOD, "amount": unscaled})
    known = event(PLAIN, avro_schema(amount=DECIMAL))
    assert together([written], [NOW], schemas(known)) == [expected]
    log = SchemaLog()
    log.read([Record("record-schemas", 0, 0, NOW, None, known)])
    assert refusal(written, NOW, log) == expected


def test_without_schemas_a_frame_is_no_json_as_ever() -> None:
    assert together([frame(JSON_ID, record()), frame(1, b"{}")]) == [
        Reason.INVALID_UTF8,
        Reason.MALFORMED_JSON,
    ]


def test_a_transaction_sees_the_schemas_that_arrived_before_it() -> None:
    assert verdicts([GOOD_AVRO], arrival=NOW - 1) == [Reason.UNKNOWN_SCHEMA]
    assert by_oracle(GOOD_AVRO, NOW - 1) is Reason.UNKNOWN_SCHEMA
    assert by_oracle(GOOD_AVRO, NOW) is None


def test_the_card_number_in_a_framed_record_is_found() -> None:
    value = avro(PLAIN, avro_schema(), {**GOOD, "card_id": "4111111111111111"})
    (found,) = transactions.with_card_numbers(records([value]), LIMITS, schemas())
    assert found.reason is Reason.CARD_NUMBER
    assert verdicts([value]) == [Reason.CARD_NUMBER]


def test_a_slice_of_a_column_is_unframed_by_its_own_rows() -> None:
    values = pa.array([GOOD_AVRO, None, record(), GOOD_AVRO, frame(9, b"")], pa.binary()).slice(1)
    decoded = transactions.decode_fields(values, np.full(len(values), NOW), schemas())
    assert decoded.rows.tolist() == [1, 2]
    assert [rejection.row for rejection in decoded.rejections] == [0, 3]


def test_the_first_schema_with_an_id_holds() -> None:
    known = schemas()
    known.add(NOW + 5, event(PLAIN, avro_schema()))  # a repetition
    with pytest.raises(Rejected, match="another schema"):
        known.add(NOW + 5, event(PLAIN, RICH))
    restored = RecordSchemas(json.loads(json.dumps(known.records)))
    assert restored.records == known.records
    assert len(known.records) == len(EVENTS)


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": []}
NULLS = {"type": "record", "name": "Nulls", "fields": [
    {"name": f"n{number}", "type": "null" if number else "boolean"} for number in range(100)]}  # fmt: skip
DEEP: Any = 0
for _ in range(496):
    DEEP = [DEEP]
LARGE: Any = "int"
for depth in range(12):
    LARGE = {"type": "record", "name": f"N{depth}", "fields": [{"name": "a", "type": LARGE}, {
        "name": "b", "type": "int" if depth == 0 else f"N{depth - 1}"}]}  # fmt: skip
UNSUITABLE: dict[str, tuple[Any, str, str]] = {
    "no record": ("string", "avro", "no Avro record"),
    "a missing field": ({**RICH, "fields": RICH["fields"][1:]}, "avro", "transaction_id is missing"),
    "a float": (avro_schema(amount="float"), "avro", "amount is float"),
    "a number as a string": (avro_schema(amount="string"), "avro", "amount is string"),
    "microseconds": (
        avro_schema(event_time={"type": "long", "logicalType": "timestamp-micros"}), "avro", "micros",
    ),
    "only null": (avro_schema(country="null"), "avro", "country is missing"),
    "one type too many": (avro_schema(country=["string", "int"]), "avro", "country is int, string"),
    "two scales": (avro_schema(amount=[DECIMAL, {**DECIMAL, "scale": 0}]), "avro", "scales"),
    "recursive": (avro_schema({"name": "x", "type": NODE}), "avro", "contains itself"),
    "items without bytes": (
        avro_schema({"name": "x", "type": {"type": "array", "items": EMPTY}}), "avro", "too few bytes",
    ),
    "items of many nulls": (
        avro_schema({"name": "x", "type": {"type": "array", "items": NULLS}}), "avro", "too few bytes",
    ),
    "a long symbol": (
        avro_schema(country={"type": "enum", "name": "C", "symbols": ["C" * 65]}), "avro", "characters",
    ),
    "milliseconds of bytes": (
        avro_schema(event_time={"type": "bytes", "logicalType": "timestamp-millis"}), "avro", "event_time is",
    ),
    "a string of bytes": (
        avro_schema(card_id={"type": "bytes", "logicalType": "string"}), "avro", "card_id is bytes",
    ),
    "a word of ours": (avro_schema(card_id={"type": "bytes", "logical": "string"}), "avro", "card_id is"),
    "a decimal of a long": (
        avro_schema(amount={"type": "long", "logicalType": "decimal", "scale": 2}), "avro", "amount is long",
    ),
    "a list as scale": (avro_schema(amount={**DECIMAL, "scale": [2]}), "avro", "no schema"),
    "a union in a union": (avro_schema(amount=["null", ["double", "int"]]), "avro", "no .*schema"),
    "a list as name": (avro_schema({"name": ["x"], "type": "int"}), "avro", "no .*schema"),
    "nested deeply": (avro_schema({"name": "x", "type": "int", "doc": DEEP}), "avro", "nested"),
    "too many types": (avro_schema({"name": "x", "type": LARGE}), "avro", "more than"),
    "an unknown type": (avro_schema({"name": "x", "type": "Gone"}), "avro", "no Avro schema"),
    "no type": (avro_schema({"name": "x"}), "avro", "no Avro schema"),
    "no Avro": (7, "avro", "no Avro schema"),
    "a name that is none": (avro_schema({"name": "x", "type": {**NODE, "name": 7}}), "avro", "no Avro"),
    "a fixed of no size": (
        avro_schema({"name": "x", "type": {"type": "fixed", "name": "F", "size": 0}}), "avro", "no size",
    ),
    "JSON without properties": ({"type": "object"}, "json", "no properties"),
    "JSON without types": ({"properties": {"transaction_id": {}}}, "json", "transaction_id is missing"),
    "JSON of other types": (
        {"properties": {**JSON_SCHEMA["properties"], "amount": {"type": "string"}}}, "json", "amount is str",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "kind", "says"), UNSUITABLE.values(), ids=UNSUITABLE)
def test_a_schema_of_other_records_is_refused(schema: Any, kind: str, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        read(event(5, schema, kind))


@pytest.mark.parametrize(
    "value", [b"", b"{", b"\xff", b"[]", event(5, RICH).replace(b"avro", b"protobuf"), b"[" * 10_000]
)
def test_a_broken_event_is_refused(value: bytes) -> None:
    with pytest.raises(ContractError, match="record-schema"):
        read(value)


types = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string", "Transaction"]),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.lists(inner, max_size=3),
        st.builds(
            lambda name, fields: {
                "type": "record", "name": name, "fields": [
                    {"name": f"f{at}", "type": kind} for at, kind in enumerate(fields)]},
            st.sampled_from(["A", "B", "c.A"]), st.lists(inner, max_size=3),
        ),
        st.builds(lambda name: {"type": "enum", "name": name, "symbols": ["x", "y"]}, st.sampled_from("DE")),
        st.builds(
            lambda size, logical: {"type": "fixed", "name": "F", "size": size, "logicalType": logical},
            st.integers(-1, 3), st.sampled_from(["decimal", "duration"]),
        ),
        st.builds(lambda kind: {"type": kind, "logicalType": "date"}, inner),
    ),
    max_leaves=6,
)  # fmt: skip


@examples(300)
@given(st.lists(types, max_size=3), st.randoms(use_true_random=False))
def test_of_every_accepted_schema_job_and_oracle_read_the_same_records(
    kinds: Any, rng: random.Random
) -> None:
    more = [{"name": f"x{at}", "type": kind} for at, kind in enumerate(kinds)]
    added = event(9, avro_schema(*more))
    try:
        known = schemas(added)
    except Rejected:
        return
    log = SchemaLog()
    assert not log.read([Record("record-schemas", 0, 0, NOW, None, added)])
    for size in (0, 1, 4, 16):
        value = frame(9, GOOD_AVRO[5:] + bytes(rng.choice((0, 0, 1, 2, 4, 6, 255)) for _ in range(size)))
        (verdict,) = together([value], [NOW], known)
        assert reason(verdict) == refusal(value, NOW, log)
