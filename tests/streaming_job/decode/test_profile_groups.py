"""Each key group keeps the profile rows of its own cards; together they keep what a single group would."""

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from harness.raw_records import records
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from feature_store.kernels.hashing import hash_string
from loadtests.oracle.partitions import partition_of
from streaming_job.contracts import Reason
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode import keys, profiles, snapshots, strict
from streaming_job.decode.profiles import ProfileChanges
from streaming_job.log.partitioner import KeyGroups, Partitioner
from streaming_job.log.records import Records

pytestmark = pytest.mark.unit

PARTITIONS = 10
CARDS = [f"c-{number}" for number in range(20)] + ["é€😀", "a b", "x" * 64, "a'b\x7f"]
_BLANKS = rb"[ \t\r\n]*"
_PLAIN = re.compile(rb'B\{B"card_id"B:B"([^"\\\x00-\x1f]*)"B\}B'.replace(b"B", _BLANKS))


def plain_card(key: bytes | None) -> bytes | None:
    """The card that a plain key names, None for other keys; the pattern _PLAIN defines a plain key."""
    match = _PLAIN.fullmatch(key or b"")
    return match[1] if match else None


def plain_key(card: str) -> bytes:
    return json.dumps({"card_id": card}, ensure_ascii=False, separators=(",", ":")).encode()


def envelope(card: str, op: str = "u", snapshot: str = "false", **changes: Any) -> bytes:
    row = {
        "card_id": card, "status": "active", "home_country": "DE", "currency": "EUR", "credit_limit": 1.0,
        "risk_tier": 1, "opened_on": 9, **changes,
    }  # fmt: skip
    rows = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**rows, "op": op, "source": {"snapshot": snapshot, "lsn": 7}}).encode()


def log(rows: list[tuple[bytes | None, bytes | None]], partitions: list[int] | None = None) -> Records:
    keys_, values = [key for key, _ in rows], [value for _, value in rows]
    arrivals = [1000 + row for row in range(len(rows))]
    return records(values, arrivals, keys=keys_, partitions=partitions or [0] * len(rows), topic="profiles")


def by_group(fetched: Records, groups: KeyGroups) -> list[ProfileChanges]:
    return [profiles.decode(fetched, groups, group) for group in range(groups.groups)]


def naive(fetched: Records, groups: KeyGroups) -> list[ProfileChanges]:
    """Decode all records one by one, and assign them to groups afterwards."""
    changes: list[list[np.ndarray]] = [[np.zeros(0, profiles.PROFILE)] for _ in range(groups.groups)]
    letters: list[list[DeadLetter]] = [[] for _ in range(groups.groups)]
    whole: list[list[bool]] = [[] for _ in range(groups.groups)]
    cards: list[list[str]] = [[] for _ in range(groups.groups)]
    letter_homes: list[list[int]] = [[] for _ in range(groups.groups)]
    ends = []
    for row in range(len(fetched)):
        key, value = fetched.keys[row].as_py(), fetched.values[row].as_py()
        partition, offset = int(fetched.partitions[row]), int(fetched.offsets[row])
        arrival = int(fetched.arrivals[row])
        if snapshots.ends_snapshot(value):
            ends.append(arrival)
        try:
            change, card, fault = profiles.read(key, value, partition, offset, arrival)
        except strict.Rejected as refusal:
            fault = refusal
        else:
            change["lo"], change["hi"] = hash_string(card)
            home = _home(card.encode(), groups)
            changes[home % groups.groups].append(change)
            whole[home % groups.groups].append(fault is None)
            cards[home % groups.groups].append(card)
        if fault is not None:
            named = plain_card(key)
            home = 0 if named is None else _home(named, groups)
            letters[home % groups.groups].append(
                DeadLetter("profiles", partition, offset, arrival, key, value, fault.reason, fault.detail)
            )
            letter_homes[home % groups.groups].append(home)
    return [
        ProfileChanges(
            np.concatenate(changes[group]),
            np.array(whole[group], bool),
            groups.places_of(pa.array(cards[group], pa.string())),
            letters[group],
            letter_homes[group],
            min(ends, default=None),
        )
        for group in range(groups.groups)
    ]


def _home(card: bytes, groups: KeyGroups) -> int:
    return int(groups.partitions_of(pa.array([card], type=pa.binary()))[0])


def same(one: ProfileChanges, other: ProfileChanges) -> bool:
    return (
        repr(one.changes.tolist()) == repr(other.changes.tolist())
        and one.whole.tolist() == other.whole.tolist()
        and one.places.tolist() == other.places.tolist()
        and (one.dead_letters, one.letter_homes) == (other.dead_letters, other.letter_homes)
        and one.snapshot_end == other.snapshot_end
    )


def escaped(card: str) -> bytes:
    text = "".join(f"\\u{ord(character):04x}" for character in card if ord(character) < 1 << 16)
    return f'{{"card_id":"{text}"}}'.encode()


ODD_KEYS = [
    None, b"", b"{}", b"c-1", b"[]", b'"c-1"', b'{"card_id":1}', b'{"card_id":"c-1"', b'{"card_id":"c-1}',
    b'{"card_id":"c-1"}}', b'{"card_id":"c-1"} x', b'{"card_id":"c-1","card_id":"c-1"}',
    b'{"card":"c-1"}', b'{"card_id" "c-1"}', b'{"card_id":"c\n1"}', b'{"card_id":"c-\\u0031"}',
    b'{"card_id":"c-1",}', escaped("c-1"),
    b'{"schema":null,"payload":{"card_id":"c-1"}}', b'{"card_id":"c-1","x":1}', b'{"card_i', b'{"card_id":',
    b'{"card_id":"', b"\xef\xbb\xbf" + plain_key("c-1"), b'{"card_id":"c-1"}\0', b"\x0b" + plain_key("c-1"),
]  # fmt: skip
PLAIN_KEYS = [
    b'{"card_id":"c-1"}', b'{"card_id": "c-1"}', b' \t{\r\n "card_id" :\n"c-1" } ', b'{"card_id":""}',
    b'{"card_id":"\xff"}', b'{"card_id":"' + b"x" * 65 + b'"}', b'{"card_id":"a\'b\x7f"}', plain_key("é€😀"),
]  # fmt: skip


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_key_names_no_card(key):
    assert plain_card(key) is None
    assert keys.card(key) is None
    assert keys.cards(pa.array([key], type=pa.binary()))[0].tolist() == [False]


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_plain_key_names_its_card(key):
    assert keys.card(key) == plain_card(key) is not None
    plain, cards = keys.cards(pa.array([key], type=pa.binary()))
    assert (plain.tolist(), cards.to_pylist()) == ([True], [keys.card(key)])


_PIECES = st.sampled_from(
    [b"{", b"}", b'"', b'"card_id"', b":", b",", b" ", b"\n", b"c-1", b"\\", b"\xc3\xa9", b"\x00", b"\xff"]
)
_MARKS = st.sampled_from([b'"', b"last", b'"last"', b'"last_i', b"_i", b"l", b"x" * 40])


@examples(100, 50_000)
@given(st.lists(st.one_of(st.sampled_from(ODD_KEYS + PLAIN_KEYS), st.lists(_PIECES).map(b"".join))))
def test_columns_of_keys_are_read_as_the_pattern_has_them(column):
    array = pa.array([b"in front", *column], type=pa.binary()).slice(1)
    plain, cards = keys.cards(array)
    result = [card if is_plain else None for is_plain, card in zip(plain, cards.to_pylist(), strict=True)]
    assert result == [plain_card(key) for key in column]


@examples(60)
@given(st.lists(st.tuples(st.lists(_MARKS).map(b"".join), st.booleans())))
def test_values_with_the_marker_are_found_wherever_it_is(column):
    asked = np.array([wanted for _, wanted in column], dtype=np.bool_)
    result = keys.may_end_snapshot(pa.array([value for value, _ in column], type=pa.binary()), asked)
    marks = [wanted and (b'"last"' in value[:-1] or (b'"last_i' in value)) for value, wanted in column]
    assert result.tolist() == marks


@st.composite
def rows(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    card = draw(st.sampled_from(CARDS))
    key = draw(
        st.one_of(
            st.just(plain_key(card)),
            st.just(json.dumps({"card_id": card}, indent=1, ensure_ascii=False).encode()),
            st.just(json.dumps({"x": 1, "card_id": card}).encode()),
            st.just(escaped(card) if card.isascii() else plain_key(card)),
            st.sampled_from(CARDS).map(plain_key),
            st.sampled_from(ODD_KEYS + PLAIN_KEYS),
        )
    )
    op = draw(st.sampled_from("rcud"))
    snapshot = draw(st.sampled_from(["true", "last", "false", "incremental"]))
    changes = draw(st.sampled_from([{}, {}, {}, {"risk_tier": 9}, {"card_id": ""}, {"note": "last"}]))
    value = draw(
        st.one_of(
            st.just(envelope(card, op, snapshot, **changes)),
            st.none(),
            st.sampled_from([b"", b"{", b'{"op":"r","source":{"snapshot":"last"}}', b'"last"']),
        )
    )
    return key, value


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("partitioner", list(Partitioner))
@examples(40, 5_000)
@given(st.data())
def test_groups_decode_the_same_as_decoding_all_and_assigning(partitioner, groups, data):
    key_groups = KeyGroups(partitioner, partitions=PARTITIONS, groups=groups)
    drawn = data.draw(st.lists(rows(), max_size=25))
    fetched = log(drawn, sorted(data.draw(st.integers(0, 2)) for _ in drawn))
    result = by_group(fetched, key_groups)
    for decoded, other in zip(result, naive(fetched, key_groups), strict=True):
        assert same(decoded, other)
    offsets = [offset for part in result for offset in part.changes["offset"][part.whole].tolist()]
    offsets += [letter.offset for part in result for letter in part.dead_letters]
    assert sorted(offsets) == list(range(len(drawn)))  # each record is kept whole or reported by one group


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_each_row_of_a_valid_log_is_kept_only_by_its_cards_group(groups):
    key_groups = KeyGroups(Partitioner.MURMUR2, partitions=PARTITIONS, groups=groups)
    cards = [f"c-{row % 97}" for row in range(500)]
    result = by_group(log([(plain_key(card), envelope(card)) for card in cards]), key_groups)
    owner = [partition_of(card, PARTITIONS, "murmur2") % groups for card in cards]
    for group, decoded in enumerate(result):
        assert decoded.changes["offset"].tolist() == [row for row, own in enumerate(owner) if own == group]
        assert decoded.dead_letters == []


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_every_faulty_row_is_reported_by_the_group_that_its_key_names_or_by_group_0(groups):
    key_groups = KeyGroups(Partitioner.CRC32, partitions=PARTITIONS, groups=groups)
    faulty: list[tuple[bytes | None, bytes | None]] = [
        *((plain_key(card), value) for card in CARDS for value in (b"", b"{", envelope(card, status="x"))),
        *((plain_key(card), envelope(CARDS[row - 1])) for row, card in enumerate(CARDS)),  # other card
        *((key, b"{") for key in ODD_KEYS),
        *((key, envelope("c-1", status="lost")) for key in ODD_KEYS),
        (None, None),
    ]
    result = by_group(log(faulty), key_groups)
    spoken = {letter.offset: group for group, decoded in enumerate(result) for letter in decoded.dead_letters}
    assert sum(len(decoded.dead_letters) for decoded in result) == len(spoken) == len(faulty)
    for row, (key, _) in enumerate(faulty):
        card = plain_card(key)
        named = 0 if card is None else partition_of(card.decode(), PARTITIONS, "crc32") % groups
        assert spoken[row] == named
    assert sum(decoded.changes.size for decoded in result) == 0


def test_a_key_that_names_another_card_is_an_error_of_the_record():
    key_groups = KeyGroups(Partitioner.MURMUR2, partitions=PARTITIONS, groups=1)
    decoded = profiles.decode(log([(plain_key("c-1"), envelope("c-2"))]), key_groups, 0)
    (letter,) = decoded.dead_letters
    assert (letter.topic, letter.partition, letter.offset, letter.arrival) == ("profiles", 0, 0, 1000)
    assert (letter.key, letter.value) == (plain_key("c-1"), envelope("c-2"))
    assert letter.reason == Reason.INVALID_VALUE
    assert "names another card" in letter.detail


def test_every_group_learns_the_end_of_the_snapshot_from_any_card():
    key_groups = KeyGroups(Partitioner.MURMUR2, partitions=PARTITIONS, groups=5)
    snapshot = [(plain_key(card), envelope(card, "r", "true")) for card in CARDS[:9]]
    snapshot += [(plain_key("c-9"), envelope("c-9", "r", "last")), (plain_key("c-10"), envelope("c-10"))]
    result = by_group(log(snapshot), key_groups)
    assert [decoded.snapshot_end for decoded in result] == [1009] * 5
    assert sum(decoded.changes.size for decoded in result) == 11  # and each row is kept by one group


def test_rows_of_other_groups_are_not_decoded(monkeypatch):
    key_groups = KeyGroups(Partitioner.MURMUR2, partitions=PARTITIONS, groups=5)
    fetched = log([(plain_key(card), envelope(card)) for card in CARDS])
    parsed = []
    parse = strict.parse_object
    monkeypatch.setattr(strict, "parse_object", lambda value: (parsed.append(value), parse(value))[1])
    for group in range(5):
        parsed.clear()
        assert profiles.decode(fetched, key_groups, group).changes.size == len(parsed) < len(CARDS)


def test_an_empty_batch_has_no_changes():
    key_groups = KeyGroups(Partitioner.MURMUR2, partitions=PARTITIONS, groups=2)
    decoded = profiles.decode(log([]), key_groups, 0)
    assert (decoded.changes.size, decoded.dead_letters, decoded.snapshot_end) == (0, [], None)
