"""Records that become dead letters, their reasons, and equal outcomes for a record alone and in a batch."""

import json
import random
import time

import pytest
from harness.raw_records import (
    GOOD,
    KEY_GROUPS,
    LIMITS,
    NOW,
    PARTITION,
    alone,
    decode,
    mutated,
    neighbours,
    raw,
    record,
    seeds,
    together,
    without,
)
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from loadtests.oracle import AcceptanceRules, Record
from loadtests.oracle.decode import RefusedError, read_transaction
from streaming_job.contracts import Contract, ContractError, Reason, validate
from streaming_job.decode import strict

pytestmark = pytest.mark.unit

STRANGER = next(card for card in map("c-{}".format, range(99)) if not neighbours([card]))
"""A card that belongs to another partition than the records of these tests."""
IDENTIFIERS = ("transaction_id", "card_id", "merchant_id")


def escaped(text: str) -> str:
    """JSON text with an escape for each character."""
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


BAD: list[tuple[str, bytes | None, Reason]] = [
    ("null", None, Reason.EMPTY_VALUE),
    ("no bytes", b"", Reason.EMPTY_VALUE),
    ("one byte too many", record(x="y" * 65_536)[:65_537], Reason.RECORD_TOO_LARGE),
    ("a megabyte", b"{" * 1_000_000, Reason.RECORD_TOO_LARGE),
    ("not UTF-8", record()[:-1] + b"\xff}", Reason.INVALID_UTF8),
    ("Latin-1", record(merchant_id="Café").decode().encode("latin-1"), Reason.INVALID_UTF8),
    ("UTF-8 of half a surrogate pair", record(note="\ud800"), Reason.INVALID_UTF8),
    *(
        (f"{name} not UTF-8", record(**{name: "HERE"}).replace(b"HERE", b"\xed\xa0\x80"), Reason.INVALID_UTF8)
        for name in (*IDENTIFIERS, "currency", "country")
    ),
    ("UTF-16", json.dumps(GOOD).encode("utf-16"), Reason.INVALID_UTF8),
    ("blanks", b"   ", Reason.MALFORMED_JSON),
    ("no JSON", b"hello", Reason.MALFORMED_JSON),
    ("cut off", record()[:-1], Reason.MALFORMED_JSON),
    ("comma at the end", record()[:-1] + b",}", Reason.MALFORMED_JSON),
    ("single quotes", str(GOOD).encode(), Reason.MALFORMED_JSON),
    ("byte order mark", b"\xef\xbb\xbf" + record(), Reason.MALFORMED_JSON),
    ("two objects", record() + record(), Reason.MALFORMED_JSON),
    ("two objects, two lines", record() + b"\n" + record(), Reason.MALFORMED_JSON),
    ("NUL and more", record() + b"\0}", Reason.MALFORMED_JSON),
    ("raw newline in a string", record(note="HERE").replace(b"HERE", b"a\nb"), Reason.MALFORMED_JSON),
    ("comment", record()[:-1] + b"/* x */}", Reason.MALFORMED_JSON),
    ("leading zero", raw("amount", "01"), Reason.MALFORMED_JSON),
    ("Inf elsewhere", raw("note", "Inf"), Reason.MALFORMED_JSON),  # Python's json reads Infinity, but not Inf
    ("-Inf elsewhere", raw("note", "-Inf"), Reason.MALFORMED_JSON),
    ("too many digits elsewhere", raw("note", "9" * 4301), Reason.MALFORMED_JSON),
    ("nested too deep elsewhere", raw("note", "[" * 256 + "]" * 256), Reason.MALFORMED_JSON),
    ("array", b"[" + record() + b"]", Reason.NOT_AN_OBJECT),
    ("number", b"1", Reason.NOT_AN_OBJECT),
    ("string", b'"x"', Reason.NOT_AN_OBJECT),
    ("NaN alone", b"NaN", Reason.NOT_AN_OBJECT),
    *(
        (f"{name} twice", record()[:-1] + f',"{name}":{json.dumps(value)}}}'.encode(), Reason.DUPLICATE_FIELD)
        for name, value in GOOD.items()
    ),
    *((f"no {name}", without(name), Reason.MISSING_FIELD) for name in GOOD),
    *((f"{name} null", record(**{name: None}), Reason.WRONG_TYPE) for name in GOOD),
    *((f"{name} true", record(**{name: True}), Reason.WRONG_TYPE) for name in GOOD),
    *((f"{name} an array", record(**{name: [1]}), Reason.WRONG_TYPE) for name in GOOD),
    *((f"{name} a number", record(**{name: 1}), Reason.WRONG_TYPE) for name in (*IDENTIFIERS, "currency")),
    ("amount a string", record(amount="1"), Reason.WRONG_TYPE),
    ("event_time a string", record(event_time=str(NOW)), Reason.WRONG_TYPE),
    ("event_time with a fraction", record(event_time=float(NOW)), Reason.WRONG_TYPE),
    ("event_time NaN", raw("event_time", "NaN"), Reason.WRONG_TYPE),
    *((f"{name} empty", record(**{name: ""}), Reason.INVALID_VALUE) for name in IDENTIFIERS),
    *((f"{name} of 65", record(**{name: "x" * 65}), Reason.INVALID_VALUE) for name in IDENTIFIERS),
    *((f"{name} of 65 é", record(**{name: "é" * 65}), Reason.INVALID_VALUE) for name in IDENTIFIERS),
    *((f"{name} with a newline", record(**{name: "a\nb"}), Reason.INVALID_VALUE) for name in IDENTIFIERS),
    *((f"{name} with NUL", record(**{name: "a\0b"}), Reason.INVALID_VALUE) for name in IDENTIFIERS),
    ("half a surrogate pair", raw("card_id", '"\\ud800"'), Reason.INVALID_VALUE),
    ("small currency", record(currency="eur"), Reason.INVALID_VALUE),
    ("long currency", record(currency="EURO"), Reason.INVALID_VALUE),
    ("Greek currency", record(currency="\u0395UR"), Reason.INVALID_VALUE),
    ("currency and newline", record(currency="EUR\n"), Reason.INVALID_VALUE),
    ("long country", record(country="FRA"), Reason.INVALID_VALUE),
    ("country with a digit", record(country="F1"), Reason.INVALID_VALUE),
    ("fullwidth country", record(country="\uff26\uff32"), Reason.INVALID_VALUE),
    ("amount over the limit", record(amount=1e9 + 0.01), Reason.INVALID_VALUE),
    ("amount of 400 digits", raw("amount", "9" * 400), Reason.INVALID_VALUE),
    ("event_time negative", record(event_time=-1), Reason.INVALID_VALUE),
    ("event_time in the year 5138", record(event_time=10**14), Reason.INVALID_VALUE),
    ("event_time beyond 64 bits", record(event_time=2**64), Reason.INVALID_VALUE),
    ("amount NaN", raw("amount", "NaN"), Reason.NON_FINITE_NUMBER),
    ("amount Infinity", raw("amount", "Infinity"), Reason.NON_FINITE_NUMBER),
    ("amount -Infinity", raw("amount", "-Infinity"), Reason.NON_FINITE_NUMBER),
    ("amount 1e999", raw("amount", "1e999"), Reason.NON_FINITE_NUMBER),
    ("amount negative", record(amount=-0.01), Reason.NEGATIVE_AMOUNT),
    ("a card number", record(card_id="4111111111111111"), Reason.CARD_NUMBER),
    ("a card number, by escapes", raw("card_id", escaped("378282246310005")), Reason.CARD_NUMBER),
    ("a card number, too old", record(card_id="4111111111111111", event_time=0), Reason.CARD_NUMBER),
    ("8 days old", record(event_time=NOW - 8 * 86_400_000), Reason.TOO_LATE),
    ("a millisecond too old", record(event_time=NOW - LIMITS.lateness_ms - 1), Reason.TOO_LATE),
    ("a millisecond too new", record(event_time=NOW + LIMITS.skew_ms + 1), Reason.FUTURE_EVENT_TIME),
    ("another partition's card", record(card_id=STRANGER), Reason.WRONG_PARTITION),
    ("another partition's card, by escapes", raw("card_id", escaped(STRANGER)), Reason.WRONG_PARTITION),
    ("another partition's, too old", record(card_id=STRANGER, event_time=0), Reason.TOO_LATE),
]

FINE: list[tuple[str, bytes]] = [
    ("plain", record()),
    ("as old as may be", record(event_time=NOW - LIMITS.lateness_ms)),
    ("as new as may be", record(event_time=NOW + LIMITS.skew_ms)),
    ("amount 0", record(amount=0)),
    ("amount -0.0", raw("amount", "-0.0")),
    ("greatest amount", record(amount=10**9)),
    ("amount as 1E2", raw("amount", "1E2")),
    ("amount too small for a double", raw("amount", "1e-400")),
    ("amount with 5,000 digits of fraction", raw("amount", "0." + "1" * 5000)),
    ("digits that fail Luhn's check", record(card_id=neighbours(f"4{n:015}" for n in range(99, 999, 10))[0])),
    ("64 letters", record(card_id=neighbours(letter * 64 for letter in "stuvwxyz")[0])),
    ("64 letters of two bytes", record(card_id=neighbours(letter * 64 for letter in "àáâãäåæçèé")[0])),
    ("card by escapes", raw("card_id", '"\\u0063-1"')),
    ("emoji by escapes", raw("merchant_id", '"\\ud83d\\ude00"')),
    ("DEL", record(merchant_id="\x7f")),
    ("indented", json.dumps(GOOD, indent=2).encode()),
    ("blanks around", b" \r\n" + record() + b"\t\n"),
    ("other order", json.dumps(dict(reversed(GOOD.items()))).encode()),
    ("optional fields of any kind", record(channel=1, mcc=None)),
    ("unknown fields", record(note={"a": [None, True, 1.5, {"b": []}]})),
    ("NaN elsewhere", raw("note", "NaN")),
    ("huge number elsewhere", raw("note", "1e999")),
    ("unknown field twice", record()[:-1] + b',"x":1,"x":2}'),
    ("a decision field twice further down", record(note=GOOD)[:-2] + b',"amount":2}}'),
    ("4,300 digits elsewhere", raw("note", "9" * 4300)),
    ("nested as deep as may be", raw("note", "[" * 255 + "]" * 255)),
    ("many brackets, none deep", record(note=[[]] * 1000)),
    ("brackets in a string", record(note="[{" * 1000)),
    ("as long as may be", record(x="y" * (65_536 - len(record(x=""))))),
]


@pytest.mark.parametrize(("value", "reason"), [pytest.param(v, r, id=name) for name, v, r in BAD])
def test_an_invalid_record_has_its_reason_alone_and_among_valid_ones(value, reason):
    assert alone(value) == reason
    good = [record(transaction_id=f"t-{i}") for i in range(40)]
    verdicts = together([*good[:25], value, *good[25:]])
    assert verdicts[25] == reason
    assert [v for at, v in enumerate(verdicts) if at != 25] == [alone(value) for value in good]


@pytest.mark.parametrize("value", [pytest.param(v, id=name) for name, v in FINE])
def test_an_odd_but_valid_record_is_accepted_alone_and_among_others(value):
    expected = alone(value)
    assert not isinstance(expected, Reason), expected
    assert together([record()] * 20 + [value] + [record()] * 20)[20] == expected
    assert together([value] * 20) == [expected] * 20


def test_every_reason_is_in_the_table():
    of_others = {
        Reason.UNKNOWN_SCHEMA,
        Reason.MALFORMED_AVRO,
        Reason.RETIRED_TOPIC,
        Reason.UNKNOWN_TRANSACTION,
        Reason.LABEL_TOO_OLD,
        Reason.INCOMPATIBLE_FEATURES,
        Reason.MODEL_UNAVAILABLE,
        Reason.MODEL_REFUSED,
        Reason.UNKNOWN_ROLLOUT,
        Reason.LAST_ROLLOUT,
        Reason.ROLLOUT_CONFLICT,
        Reason.SECOND_PERSON_MISSING,
    }
    assert {reason for _, _, reason in BAD} == set(Reason) - of_others


def test_all_bad_and_odd_records_in_one_batch_keep_their_verdicts():
    values = [value for _, value, _ in BAD] + [value for _, value in FINE]
    random.Random(1).shuffle(values)
    assert together(values) == [alone(value) for value in values]


@pytest.mark.parametrize("n", [0, 1, 16, 17])
def test_a_batch_of_nulls_is_refused_row_by_row(n):
    assert together([None] * n) == [Reason.EMPTY_VALUE] * n


def test_slice_of_an_arrow_array_decodes_as_itself():
    import pyarrow as pa

    from streaming_job.decode import transactions

    values = pa.array([None, b"bad", record(), record(transaction_id="u"), None], type=pa.binary())
    result = transactions.decode_fields(values.slice(2, 2))
    assert result.rows.tolist() == [0, 1]
    assert result.rejections == []


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([b'{"a":"}', b'{"}'], "a string that goes on in the next record"),
        ([b'{"x":{}', b'{"y":1}}'], "an object that goes on in the next record"),
        ([b'{"x":[{}', b"{}]}"], "an array that goes on in the next record"),
        ([record() + record(), record() + b"\0}"], "two objects in one record, and a NUL byte in the next"),
        ([record() + b"\n" + record(), b"{}"], "one record of two lines"),
        ([b'{"x":"}', b'{","y":"}', b'{"}'], "strings across three records"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_records_do_not_affect_their_neighbours(values, why):
    for batch in (values, values[::-1], [record()] * 30 + values + [record()] * 30):
        assert together(batch) == [alone(value) for value in batch]


@examples(150, thorough=40_000)
@given(st.integers(0, 2**32), st.sampled_from((1, 8, 64)), st.floats(0, 1))
def test_a_batch_has_the_outcomes_of_strict_record_by_record(seed, size, share):
    """A thorough run tries a million records."""
    rng = random.Random(seed)
    values: list[bytes | None] = []
    for _ in range(size):
        value = seeds(rng)
        values.append(mutated(rng, value, seeds(rng)) if rng.random() < share else value)
    arrivals = [NOW + rng.choice([0, 0, 1, -(10**6), 8 * 86_400_000]) for _ in values]
    expected = [alone(value, arrival) for value, arrival in zip(values, arrivals, strict=True)]
    verdicts = together(values, arrivals)
    wrong = [(values[at], expected[at], verdicts[at]) for at in range(size) if expected[at] != verdicts[at]]
    assert wrong == []


def oracles(value: bytes | None) -> Reason | None:
    """The oracle's reason for a record; None if it is accepted."""
    record = Record("t", PARTITION, 0, NOW, None, value)
    rules = AcceptanceRules(LIMITS.lateness_ms, LIMITS.skew_ms, KEY_GROUPS.partitions, KEY_GROUPS.partitioner)
    try:
        read_transaction(record, rules)
    except RefusedError as fault:
        return fault.reason
    return None


@examples(20, 1_000)
@given(st.integers(0, 2**32))
def test_the_oracle_refuses_the_same_records_for_the_same_reasons(seed):
    rng = random.Random(seed)
    for value in [mutated(rng, seeds(rng), seeds(rng)) for _ in range(100)]:
        verdict = alone(value)
        assert oracles(value) == (verdict if isinstance(verdict, Reason) else None)


def test_depth_counts_within_values_hidden_by_a_repeated_name():
    deep, flat = (raw("note", "[" * depth + "]" * depth) for depth in (300, 2))
    assert deep.endswith(b"}")
    value = deep[:-1] + b"," + flat[1:]
    assert alone(value) == oracles(value) == Reason.MALFORMED_JSON


@examples(80)
@given(st.integers(0, 2**32))
def test_accepted_fields_are_those_of_json_and_keep_the_contract(seed):
    """A record is accepted exactly if the JSON schema accepts it, with two exceptions.

    Ids with control characters or lone surrogates and an event_time like 1.0 are refused.
    """
    value = seeds(random.Random(seed))
    try:
        fields = strict.transaction(value)
    except strict.Rejected as fault:
        fields = None
        reason = fault.reason
    parsed = json.loads(value) if fields or reason not in (Reason.INVALID_UTF8,) else {}
    if fields is not None:
        assert fields == {name: parsed[name] for name in GOOD}
    for name in IDENTIFIERS:  # stricter than the schema
        text = parsed.get(name)
        if isinstance(text, str) and any(c < " " or "\ud800" <= c <= "\udfff" for c in text):
            assert fields is None
            return
    if isinstance(parsed.get("event_time"), float):  # 1.0 is an integer to JSON Schema
        assert fields is None
        return
    try:
        validate(Contract.TRANSACTION, parsed)
        keeps_contract = True
    except ContractError:
        keeps_contract = False
    assert keeps_contract == (fields is not None)


def test_thousands_of_repeated_names_are_decoded_quickly():
    """A record with 13,000 repetitions of a name is decoded in less than quadratic time."""
    value = b"{" + b'"":0,' * 13_000 + record()[1:]
    begin = time.process_time()
    assert not isinstance(alone(value), Reason)
    assert time.process_time() - begin < 1.0


def test_one_invalid_record_does_not_send_the_others_to_the_slow_path(monkeypatch):
    singly = []
    strictly = strict.transaction
    monkeypatch.setattr(strict, "transaction", lambda value: (singly.append(value), strictly(value))[1])
    decoded = decode([record(transaction_id=f"t-{i}") for i in range(5000)] + [b"{"])
    assert len(decoded.records) == 5000
    assert len(singly) <= 16


@pytest.mark.parametrize("deep", [970, 985, 1000, 20_000])
def test_depth_is_limited_alike_at_any_depth_of_the_caller(deep):
    """Python's json fails at a depth that depends on the caller's stack; the outcome must not."""
    value = raw("note", "[" * deep + "]" * deep)

    def from_further_down(frames: int) -> object:
        return alone(value) if frames == 0 else from_further_down(frames - 1)

    assert from_further_down(0) == from_further_down(400) == Reason.MALFORMED_JSON
