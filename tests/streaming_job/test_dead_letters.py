"""Dead letters as text: nothing secret on a screen, all of it in a file, clear words for what is wrong."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from feature_store.errors import FraudError
from streaming_job.contracts import Reason
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters.commands import app
from streaming_job.dead_letters.finding import Wanted
from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.replay import check
from streaming_job.masking import safe

pytestmark = pytest.mark.unit

TOPICS = Topics()
GOOD = json.dumps(
    {
        "transaction_id": "t", "card_id": "card-0001", "merchant_id": "m", "amount": 1, "currency": "EUR",
        "country": "FR", "event_time": 1,
    }
).encode()  # fmt: skip
LETTER = Letter(
    ("dead-letters", 1, 17),
    "malformed_json",
    "cut short",
    TOPICS.transactions,
    3,
    42,
    1500,
    b"card-0001",
    b"{",
)
raw_bytes = (
    st.none() | st.binary(max_size=40) | st.text(max_size=20).map(lambda t: t.encode(errors="replace"))
)


@given(raw_bytes, raw_bytes)
def test_a_raw_line_gives_back_every_byte(key, value):
    letter = replace(LETTER, key=key, value=value)
    line = letter.raw()
    assert "\n" not in line
    assert Letter.from_raw(line) == letter


@given(raw_bytes)
def test_a_record_of_the_topic_is_read_whole(value):
    record = {
        "schema_version": 1, "reason": "malformed_json", "detail": "cut short", "topic": "transactions",
        "partition": 3, "offset": 42, "arrival_time": 1500, "key_base64": "Y2FyZC0wMDAx",
        "value_base64": None if value is None else base64.b64encode(value).decode(),
    }  # fmt: skip
    found = Letter.from_record("dead-letters", 1, 17, json.dumps(record).encode())
    assert found == replace(LETTER, value=value)


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b'{"schema_version": 1}'])
def test_other_records_on_the_topic_are_named(value):
    with pytest.raises(LetterError, match=r"dead-letters\[1\]@17 is no dead letter.*DEAD_LETTERS"):
        Letter.from_record("dead-letters", 1, 17, value)


def test_mended_value_and_key_are_taken_from_the_line():
    fields = json.loads(LETTER.raw())
    mended = Letter.from_raw(json.dumps({**fields, "value": GOOD.decode()}))
    assert mended == replace(LETTER, value=GOOD)
    other = Letter.from_raw(json.dumps({**fields, "key": "card-0002"}))
    assert other == replace(LETTER, key=b"card-0002", key_changed=True)
    del fields["value"]
    assert Letter.from_raw(json.dumps({**fields, "value_base64": "/w=="})).value == b"\xff"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": {"amount": 1}}, "value must be a string; put a JSON value into quotes"),
        ({"value_base64": "AA=="}, "not both"),
        ({"dead_letter": "17"}, "not a line of"),
        ({"partition": "x"}, "not a line of"),
    ],
)
def test_a_line_that_was_broken_while_mending_is_told(change, words):
    with pytest.raises(LetterError, match=words):
        Letter.from_raw(json.dumps({**json.loads(LETTER.raw()), **change}))


@pytest.mark.parametrize(
    "value",
    [
        b'{"card_id": "4111111111111111"}',
        b'{"note": "4111 1111 1111 1111", "x": 4111-1111-1111-1111',
        "4111111111111111".encode("utf-16"),
        b"\xff4111111111111111\x00",
        b'{"card_id":"tok_ABCDEFGHIJKLMNOP", "amount": -1}',
        b'{"card_id" : "tok_ABCDEFGHIJKLMNOP',
    ],
)
def test_nothing_secret_and_nothing_unprintable_is_shown(value):
    letter = replace(LETTER, key=b"4111111111111111", value=value)
    shown = json.dumps(letter.shown())
    assert "1111" not in shown.replace("\\u0000", "").replace("\\\\x00", "")
    assert "EFGHIJ" not in shown
    assert safe(value).isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_can_be_shown(value):
    assert safe(value).isprintable()
    assert len(safe(value, 20)) <= 20


def test_what_is_asked_for_is_found():
    wanted = Wanted(frozenset({"malformed_json"}), frozenset({"transactions"}), 1500, 1501, 1, 17, 18)
    assert wanted.holds(LETTER)
    assert Wanted().holds(LETTER)
    for other in (
        replace(LETTER, reason="too_late"), replace(LETTER, topic="x"), replace(LETTER, arrival=1499),
        replace(LETTER, arrival=1501), replace(LETTER, place=("dead-letters", 0, 17)),
        replace(LETTER, place=("dead-letters", 1, 16)), replace(LETTER, place=("dead-letters", 1, 18)),
    ):  # fmt: skip
        assert not wanted.holds(other)


def test_records_that_would_be_refused_again_are_told_by_name():
    good = replace(LETTER, value=GOOD)
    check([good], TOPICS)
    with pytest.raises(LetterError, match=r"1 of 2 records would be refused again.*dead-letters/1/17: "):
        check([good, LETTER], TOPICS)
    tombstone = replace(LETTER, topic=TOPICS.profiles, key=b'{"card_id": "c"}', value=None)
    check([tombstone], TOPICS)
    for bad in (replace(tombstone, key=b"c"), replace(LETTER, topic=TOPICS.model_rollouts)):
        with pytest.raises(LetterError, match="refused again"):
            check([bad], TOPICS)
    with pytest.raises(LetterError, match="no input of this job"):
        check([replace(LETTER, topic="elsewhere")], TOPICS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--reason", "odd"], f"no such reason: odd; there are {Reason.EMPTY_VALUE}"),
        (["list", "--since", "noon"], "'noon' is no time"),
        (["list", "--offsets", "17"], "'17' is no range"),
        (["replay"], "what is to be sent"),
        (["replay", "FILE", "--reason", "too_late"], "not both"),
        (["replay", "FILE"], "line 2: not a line of"),
        (["replay", "missing"], "cannot be read"),
        (["list", "--raw", "FILE"], "cannot be made"),
    ],
)
def test_wrong_options_and_files_are_told(arguments, words, tmp_path: Path):
    file = tmp_path / "letters"
    file.write_text(LETTER.raw() + "\nodd\n")
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    outcome = CliRunner().invoke(app, given, env={"FRAUD_BOOTSTRAP_SERVERS": "127.0.0.1:9"})
    assert isinstance(outcome.exception, FraudError)
    assert words in str(outcome.exception)


def test_missing_settings_are_told():
    outcome = CliRunner().invoke(app, ["list"], env={"FRAUD_BOOTSTRAP_SERVERS": None})
    assert "FRAUD_BOOTSTRAP_SERVERS: field required" in str(outcome.exception)


@pytest.mark.parametrize(
    "value",
    [
        b'{"card_id": "tok_0815_4711", "amount": 1',
        b"{'card_id': 'tok_0815_4711'}",
        b'[["t-1", "tok_0815_4711", 3]]',
        b"tok_0815_4711",
    ],
)
def test_card_of_the_key_is_masked_wherever_it_stands(value):
    assert "tok_0815_4711" not in safe(value, card=b"tok_0815_4711")
    assert "tok_0815" not in safe(b"{'card_id': 'tok_0815_4711'}")
