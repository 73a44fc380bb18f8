"""Dead letters as text: no secrets on a screen, everything in a file, clear messages for mistakes."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from harness import profile_log
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from feature_store.errors import FraudError
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.contracts.topics import Topics
from streaming_job.dead_letters import commands
from streaming_job.dead_letters.commands import app
from streaming_job.dead_letters.finding import LetterFilter
from streaming_job.dead_letters.letter import Letter, LetterError
from streaming_job.dead_letters.originals import require_whole
from streaming_job.dead_letters.record import MAX_CARRIED, MAX_LETTER, MAX_RECORD_KEY, DeadLetter
from streaming_job.dead_letters.replay import check, destination, target
from streaming_job.dead_letters.settings import LetterSettings
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.masking import safe

pytestmark = pytest.mark.unit

TOPICS = Topics()
SETTINGS = LetterSettings(bootstrap_servers="none")
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


def dead_letter(key: bytes | None, value: bytes | None, detail: str = "cut short") -> DeadLetter:
    """The dead letter that the job writes for a record at the input position that LETTER names."""
    return DeadLetter(LETTER.topic, 3, 42, 1500, key, value, Reason.MALFORMED_JSON, detail)


def encoded(letter: DeadLetter) -> Letter:
    """A dead letter as it is read from its topic."""
    return Letter.from_record("dead-letters", 1, 17, letter.encode())


@given(raw_bytes, raw_bytes)
def test_a_raw_line_restores_every_byte(key, value):
    letter = replace(LETTER, key=key, value=value)
    line = letter.raw()
    assert "\n" not in line
    assert Letter.from_raw(line) == letter


@given(raw_bytes, raw_bytes)
def test_a_record_of_usual_size_is_carried_whole(key, value):
    letter = dead_letter(key, value)
    fields = json.loads(letter.encode())
    validate(Contract.DEAD_LETTER, fields)
    assert not [name for name in fields if name.endswith(("_bytes", "_sha256"))]
    assert encoded(letter) == replace(LETTER, key=key, value=value)


@pytest.mark.parametrize(
    ("key", "value", "key_is_carried", "value_is_carried"),
    [
        (9, MAX_CARRIED - 9, True, True),
        (9, MAX_CARRIED - 8, True, False),
        (9, 3_000_000, True, False),
        (MAX_RECORD_KEY + 1, 0, True, True),
        (200 * 1024, 100 * 1024, True, False),
        (MAX_CARRIED, 0, True, True),
        (MAX_CARRIED, 1, True, False),
        (300_000, 500, False, True),
        (300_000, MAX_CARRIED, False, True),
        (2_000_000, 2_000_000, False, False),
        (300_000, None, False, True),
        (None, 3_000_000, True, False),
    ],
)
@pytest.mark.parametrize(
    "detail", ["cut short", "\0" * 3_000_000, "\U0001f4b3" * 3_000_000], ids=["usual", "escaped", "wide"]
)
def test_the_letter_of_a_large_record_has_size_and_digest(
    key, value, key_is_carried, value_is_carried, detail
):
    key, value = (None if size is None else b"\xff" * size for size in (key, value))
    letter = dead_letter(key, value, detail)
    assert len(letter.encode()) + len(letter.record_key or b"") < MAX_LETTER
    result = encoded(letter)
    assert result.key == (key if key_is_carried else None)
    assert result.value == (value if value_is_carried else None)
    assert result.is_whole == (key_is_carried and value_is_carried)
    for left_out, content in ((result.key_left_out, key), (result.value_left_out, value)):
        if left_out is not None:
            assert left_out.size == len(content)
            assert left_out.is_of(content)
            assert not left_out.is_of(content[:-1])
            assert not left_out.is_of(None)
    assert Letter.from_raw(result.raw()) == result


@pytest.mark.parametrize("size", [None, 0, 9, MAX_RECORD_KEY])
def test_the_letter_has_the_key_as_received(size):
    key = None if size is None else b"k" * size
    assert dead_letter(key, b"{").record_key == key
    assert dead_letter(b"k" * (MAX_RECORD_KEY + 1), b"{").record_key is None


def test_an_omitted_value_is_no_tombstone_in_a_raw_line():
    letter = encoded(dead_letter(b"card-0001", b"x" * 3_000_000))
    fields = json.loads(letter.raw())
    assert "value" not in fields
    assert fields["value_bytes"] == letter.shown()["value_bytes"] == 3_000_000
    # a person who has the value adds it
    mended = Letter.from_raw(json.dumps({**fields, "value": GOOD.decode()}))
    assert mended == replace(LETTER, value=GOOD)
    require_whole([mended])
    with pytest.raises(LetterError) as refused:
        require_whole([letter, mended])
    words = str(refused.value)
    assert words.startswith("1 dead letters are not whole, and their records are gone from the log: ")
    assert (
        ": dead-letters/1/17 (record transactions/3/42: value of 3,000,000 bytes); nothing was sent" in words
    )
    assert "put key and value into the lines of a `list --raw` file, otherwise leave" in words


def test_an_omitted_key_is_the_same_key_once_it_is_added():
    key = b"k" * 300_000
    letter = encoded(dead_letter(key, GOOD))
    fields = json.loads(letter.raw())
    assert Letter.from_raw(json.dumps({**fields, "key": key.decode()})) == replace(
        LETTER, key=key, value=GOOD
    )
    assert Letter.from_raw(json.dumps({**fields, "key": "card-0001"})).key_changed


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b'{"schema_version": 1}'])
def test_other_records_on_the_topic_are_named(value):
    with pytest.raises(LetterError, match=r"dead-letters\[1\]@17 is no dead letter.*DEAD_LETTERS"):
        Letter.from_record("dead-letters", 1, 17, value)


def test_corrected_value_and_key_are_read_from_the_line():
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
        ({"value_base64": "AA=="}, "value and value_base64 exclude each other"),
        ({"dead_letter": "17"}, "not a line of"),
        ({"partition": "x"}, "not a line of"),
    ],
)
def test_a_line_damaged_by_the_correction_is_reported(change, words):
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


def test_a_filter_selects_the_letters_that_match():
    wanted = LetterFilter(frozenset({"malformed_json"}), frozenset({"transactions"}), 1500, 1501, 1, 17, 18)
    assert wanted.matches(LETTER)
    assert LetterFilter().matches(LETTER)
    for other in (
        replace(LETTER, reason="too_late"), replace(LETTER, topic="x"), replace(LETTER, arrival=1499),
        replace(LETTER, arrival=1501), replace(LETTER, position=("dead-letters", 0, 17)),
        replace(LETTER, position=("dead-letters", 1, 16)), replace(LETTER, position=("dead-letters", 1, 18)),
    ):  # fmt: skip
        assert not wanted.matches(other)


def test_a_record_of_a_retired_topic_goes_to_where_the_transactions_are():
    late = replace(LETTER, topic="old", value=GOOD)
    with pytest.raises(LetterError, match="no input of this job"):
        check([late], SETTINGS)
    moved = SETTINGS.model_copy(update={"retired_transactions": ("older", "old")})
    check([late], moved)
    assert target(late, moved) == TOPICS.transactions
    assert destination(late, moved, 12) == destination(replace(LETTER, value=GOOD), moved, 12)


def test_records_that_would_be_refused_again_are_named():
    good = replace(LETTER, value=GOOD)
    check([good], SETTINGS)
    with pytest.raises(LetterError, match=r"1 of 2 records would be refused; .*dead-letters/1/17: "):
        check([good, LETTER], SETTINGS)
    key, value = profile_log.change("c", "u", lsn=7)
    row = replace(LETTER, topic=TOPICS.profiles, key=key, value=value)
    check([row], SETTINGS)
    for bad in (replace(row, value=b"{}"), replace(LETTER, topic=TOPICS.model_rollouts)):
        with pytest.raises(LetterError, match="would be refused"):
            check([bad], SETTINGS)
    card = replace(LETTER, value=GOOD.replace(b'"card-0001"', b'"4111111111111111"'))
    with pytest.raises(LetterError, match="form of a card number"):
        check([card], SETTINGS)
    check([card], SETTINGS.model_copy(update={"refuse_card_numbers": False}))
    with pytest.raises(LetterError, match="no input of this job"):
        check([replace(LETTER, topic="elsewhere")], SETTINGS)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, "without source.lsn"),  # a tombstone
        (profile_log.change("c", "u", lsn=0)[1], "without source.lsn"),
        (profile_log.change("c", "u", lsn=7, risk_tier=9)[1], "risk_tier"),
    ],
)
def test_a_row_of_unknown_age_is_not_replayed(value, match):
    """It could unblock a card that has been blocked meanwhile."""
    letter = replace(LETTER, topic=TOPICS.profiles, key=profile_log.key("c"), value=value)
    with pytest.raises(LetterError, match=match):
        check([letter], SETTINGS)


@pytest.mark.parametrize("partitioner", Partitioner)
@pytest.mark.parametrize("key", [b"card-0001", b"another key", None])
def test_a_transaction_goes_to_the_partition_of_its_card(partitioner, key):
    settings = LetterSettings(bootstrap_servers="127.0.0.1:9", partitioner=partitioner)
    by_card = KeyGroups(partitioner, 12, 1).partition_of("card-0001")
    for partition in range(12):
        assert destination(replace(LETTER, key=key, value=GOOD, partition=partition), settings, 12) == by_card


def test_a_table_record_goes_where_it_came_from_or_to_its_new_key():
    settings = LetterSettings(bootstrap_servers="127.0.0.1:9", partitioner=Partitioner.CRC32)
    key = b'{"card_id":"card-0001"}'
    change = replace(LETTER, topic=TOPICS.profiles, key=key, value=None)
    assert destination(change, settings, 12) == 3
    by_javas = KeyGroups(Partitioner.MURMUR2, 12, 1).partition_of(key.decode())
    assert destination(replace(change, key_changed=True), settings, 12) == by_javas
    assert destination(replace(change, key=None, key_changed=True), settings, 12) == 3


def test_a_rollout_goes_to_the_partition_that_the_job_reads():
    settings = LetterSettings(bootstrap_servers="127.0.0.1:9")
    event = replace(LETTER, topic=TOPICS.model_rollouts, partition=1)
    assert destination(event, settings, 2) == destination(replace(event, key_changed=True), settings, 2) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--reason", "odd"], f"unknown reason: odd; use {Reason.EMPTY_VALUE}"),
        (["list", "--since", "noon"], "'noon' is no time"),
        (["list", "--offsets", "17"], "'17' is no range"),
        (["replay"], "give either a FILE"),
        (["replay", "FILE", "--reason", "too_late"], "not both"),
        (["replay", "FILE"], "line 2: not a line of"),
        (["replay", "missing"], "cannot be read"),
        (["list", "--raw", "FILE"], "cannot be created"),
    ],
)
def test_wrong_options_and_files_are_reported(arguments, words, tmp_path: Path):
    file = tmp_path / "letters"
    file.write_text(LETTER.raw() + "\nodd\n")
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    outcome = CliRunner().invoke(app, given, env={"FRAUD_BOOTSTRAP_SERVERS": "127.0.0.1:9"})
    assert isinstance(outcome.exception, FraudError)
    assert words in str(outcome.exception)


def test_missing_settings_are_reported():
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
def test_the_card_of_the_key_is_masked_wherever_it_appears(value):
    assert "tok_0815_4711" not in safe(value, card=b"tok_0815_4711")
    assert "tok_0815" not in safe(b"{'card_id': 'tok_0815_4711'}")


def test_the_table_of_dead_letters_masks_the_card_in_every_column(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    letter = replace(LETTER, detail="card-0001 has no amount", value=b'{"card_id": "card-0001"')
    commands._print([letter], Counter({"malformed_json": 1}))
    output = capsys.readouterr().out
    assert "has no amount" in output
    assert "card-0001" not in output
