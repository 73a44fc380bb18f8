"""A card number in place of a token, or inside one, is refused; its dead letter does not have its digits."""

import json
from uuid import UUID

import pyarrow as pa
import pytest
from harness.raw_records import LIMITS, NOW, record, records
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from loadtests.oracle.decode import is_card_number, shows_card_number
from loadtests.simulator.world import World
from streaming_job.contracts import Contract, Reason, validate
from streaming_job.dead_letters.record import DeadLetter
from streaming_job.decode import card_numbers, transactions
from streaming_job.decode.card_numbers import holds_card_number
from streaming_job.decode.transactions import TimeLimits
from streaming_job.log.partitioner import KeyGroups, Partitioner

pytestmark = pytest.mark.unit

ONE = KeyGroups(Partitioner.MURMUR2, partitions=1, groups=1)
# published test numbers of Visa (13 and 16 digits), Mastercard, American Express, Diners Club, Maestro (19)
NUMBERS = [
    "4222222222222", "4111111111111111", "5555555555554444", "378282246310005", "30569309025904",
    "6304000000000000000",
]  # fmt: skip
WRITTEN = [
    "4111 1111 1111 1111", "4111-1111-1111-1111", "3782 822463 10005", "3782-822463-10005",
    "4111\u00a01111\u20111111 1111", "\uff14111 1111 1111 1111",
]  # fmt: skip
"""Card numbers as printed."""
HELD = [
    "PAN4111111111111111", "c-4111111111111111", "4111111111111111x", "4111111111111111=2912",
    "card 378282246310005",
    ";5555555555554444=29121010000012300000", "x 4111-1111-1111-1111",
    "\uff14" + "\uff11" * 15, "%B4111111111111111^X",
    "\N{ARABIC-INDIC DIGIT FOUR}" + "\N{ARABIC-INDIC DIGIT ONE}" * 15,
]  # fmt: skip
"""Ids that hold card numbers, or consist of other digits."""
STRIPED = ["4111111111111111=2912", ";5555555555554444=29121010000012300000", "%B4111111111111111^DOE/J"]
TOKENS = [
    "card-0000001", "4111111111111112", "42", "422222222222", "63040000000000000000", "x", "",
    "4111  1111 1111 1111", "4111_1111_1111_1111", "4111 1111 1111 1112", "c-9111111111111110",
    "c-1780000200000",
    "4111111111111111-0000001", "41111111-1111-4111-8a11-111111111111", "ab4111111111111111", "é" * 20,
    "\N{ARABIC-INDIC DIGIT FOUR}" * 16, "\U0001d7d2" * 3, "²" * 16, "①" * 16,
]  # fmt: skip


def may_hold(card: str, transaction: str = "t", merchant: str = "m") -> bool:
    quote = "\n".join((card, transaction, merchant, "EUR")).encode()
    return bool(card_numbers.find(pa.array([quote], pa.binary()))[0])


def decoded(cards: list[str], limits: TimeLimits = LIMITS) -> transactions.DecodedTransactions:
    values = [record(card_id=card, transaction_id=f"t-{row}") for row, card in enumerate(cards)]
    for row in range(0, len(cards), 3):  # records with escapes are read by `strict`
        values[row] = json.dumps(json.loads(values[row])).encode().replace(b"EUR", b"\\u0045UR")
    return transactions.decode(records(values, partitions=[0] * len(cards)), limits, ONE)


def test_card_numbers_are_distinguished_from_tokens() -> None:
    for text in NUMBERS + WRITTEN + HELD:
        assert holds_card_number(text, is_card_id=True), text
        assert may_hold(text)
    for text in TOKENS:
        assert not holds_card_number(text, is_card_id=True), text
        assert not may_hold(text) or not text.isascii()
    assert card_numbers.find(pa.array([], pa.binary())).tolist() == []


def test_in_other_ids_only_unmistakable_card_numbers_are_refused() -> None:
    """A serial number of 16 digits has a valid check digit in one of ten cases."""
    for text in WRITTEN + STRIPED:
        assert holds_card_number(text, is_card_id=False), text
        assert may_hold("c", text)
        assert may_hold("c", "t", text)
    for text in NUMBERS + TOKENS + ["PAN4111111111111111", "0000-4111111111111111", "66-6-01276903149"]:
        assert not holds_card_number(text, is_card_id=False), text
        assert not text.isascii() or not may_hold("c", text, text)


_PARTS = st.one_of(
    st.sampled_from(
        [*NUMBERS, *WRITTEN, *STRIPED, " ", "-", "=", "^", "4111", "1111", "a", "F", "g", "é", "\uff11"]
    ),
    st.text("0123456789", min_size=1, max_size=19),
    st.text("0123456789 -", min_size=11, max_size=23),
)


@examples(400, 20_000)
@given(st.lists(_PARTS, max_size=5).map("".join))
def test_kernel_rule_and_oracle_agree(text: str) -> None:
    whole, shown = holds_card_number(text, is_card_id=True), holds_card_number(text, is_card_id=False)
    assert (whole, shown) == (is_card_number(text), shows_card_number(text))
    for found, held in (
        (may_hold(text), whole),
        (may_hold("c", text), shown),
        (may_hold("c", "t", text), shown),
    ):
        assert found == held if text.isascii() else found >= held


@examples(100, 5_000)
@given(st.uuids(), st.integers(0, 10**16))
def test_hexadecimal_tokens_and_serial_numbers_are_no_card_numbers(token: UUID, number: int) -> None:
    for text in (str(token), token.hex, str(token).upper()):
        letters = sum(character.isalpha() for character in text)
        assert letters < 2 or not may_hold(text, text, text)
    assert not may_hold("c", str(number), str(number))


def test_card_numbers_become_dead_letters_that_do_not_quote_them() -> None:
    cards = [*NUMBERS, *WRITTEN, *HELD, *filter(None, TOKENS), *NUMBERS]
    outcome = decoded(cards)
    refused = [row for row, card in enumerate(cards) if card in NUMBERS + WRITTEN + HELD]
    assert [(rejection.row, rejection.reason) for rejection in outcome.rejections] == [
        (row, Reason.CARD_NUMBER) for row in refused
    ]
    assert not any(
        card in rejection.detail for rejection in outcome.rejections for card in cards if len(card) > 9
    )
    assert outcome.rows.tolist() == [row for row in range(len(cards)) if row not in refused]


def test_the_detail_names_the_field() -> None:
    values = [record(**{name: WRITTEN[0]}) for name in ("card_id", "transaction_id", "merchant_id")]
    outcome = transactions.decode(records(values, partitions=[0] * 3), LIMITS, ONE)
    assert [rejection.detail.split()[0] for rejection in outcome.rejections] == [
        "card_id", "transaction_id", "merchant_id"
    ]  # fmt: skip


def test_the_dead_letter_has_no_copy_of_the_number() -> None:
    number = NUMBERS[1].encode()
    letter = DeadLetter(
        "transactions", 0, 1, NOW, number, record(card_id=NUMBERS[1]), Reason.CARD_NUMBER, "x"
    )
    fields = json.loads(letter.encode())
    validate(Contract.DEAD_LETTER, fields)
    assert letter.record_key is None
    assert (fields["key_base64"], fields["value_base64"], fields.get("key_sha256")) == (None, None, None)
    assert fields["value_bytes"] == len(letter.value or b"")


def test_an_installation_with_such_tokens_can_accept_them() -> None:
    outcome = decoded(NUMBERS, TimeLimits(LIMITS.lateness_ms, LIMITS.skew_ms, refuse_card_numbers=False))
    assert outcome.rejections == []


def test_a_card_number_is_reported_before_times_and_partitions() -> None:
    values = [record(card_id=NUMBERS[0], event_time=0), record(card_id=NUMBERS[0], event_time=2 * NOW)]
    outcome = transactions.decode(records(values, partitions=[0, 1]), LIMITS, ONE)
    assert [rejection.reason for rejection in outcome.rejections] == [Reason.CARD_NUMBER] * 2


def test_the_simulators_ids_are_tokens() -> None:
    world = World.create(seed=1, cards=20_000)
    for ids in (world.cards.ids, world.merchants.ids):
        assert not any(may_hold(text, text, text) for text in ids.to_pylist())
