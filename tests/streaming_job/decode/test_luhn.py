"""A card number in place of a token is refused; in the dead letter only the copied record has its digits."""

import json
import time

import pyarrow as pa
import pytest
from harness.raw_records import LIMITS, NOW, record, records
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from loadtests.oracle.decode import is_card_number
from loadtests.simulator.world import World
from streaming_job.contracts import Reason
from streaming_job.decode import luhn, transactions
from streaming_job.decode.transactions import TimeLimits
from streaming_job.log.partitioner import KeyGroups, Partitioner

pytestmark = pytest.mark.unit

ONE = KeyGroups(Partitioner.MURMUR2, partitions=1, groups=1)
# published test numbers of Visa (13 and 16 digits), Mastercard, American Express, Diners Club, Maestro (19)
NUMBERS = [
    "4222222222222", "4111111111111111", "5555555555554444", "378282246310005", "30569309025904",
    "6304000000000000000",
]  # fmt: skip
TOKENS = [
    "card-0000001", "c-4111111111111111", "4111111111111111x", "4111 1111 1111 1111", "4111111111111112",
    "42", "422222222222", "63040000000000000000", "\N{ARABIC-INDIC DIGIT FOUR}" * 16, "x",
]  # fmt: skip


def are_refused(ids: list[str]) -> list[bool]:
    return list(luhn.find_card_numbers(pa.array([text.encode() for text in ids], pa.binary())).tolist())


def decoded(cards: list[str], limits: TimeLimits = LIMITS) -> transactions.Decoded:
    values = [record(card_id=card, transaction_id=f"t-{row}") for row, card in enumerate(cards)]
    for row in range(0, len(cards), 3):  # records with escapes are read by `strict`
        values[row] = json.dumps(json.loads(values[row])).encode().replace(b"EUR", b"\\u0045UR")
    return transactions.decode(records(values, partitions=[0] * len(cards)), limits, ONE)


def test_card_numbers_are_distinguished_from_tokens() -> None:
    assert are_refused(NUMBERS) == [True] * len(NUMBERS)
    assert are_refused(TOKENS) == [False] * len(TOKENS)
    assert are_refused([]) == []


@examples(120)
@given(st.lists(st.text("0123456789", min_size=11, max_size=21), max_size=20))
def test_the_kernel_agrees_with_the_oracle(ids: list[str]) -> None:
    assert are_refused(ids) == [is_card_number(text) for text in ids]


def test_card_numbers_become_dead_letters_that_do_not_quote_them() -> None:
    cards = [*NUMBERS, *TOKENS, *NUMBERS]
    outcome = decoded(cards)
    refused = [row for row, card in enumerate(cards) if card in NUMBERS]
    assert [(rejection.row, rejection.reason) for rejection in outcome.rejections] == [
        (row, Reason.CARD_NUMBER) for row in refused
    ]
    assert not any(
        card in rejection.detail for rejection in outcome.rejections for card in cards if len(card) > 9
    )
    assert outcome.rows.tolist() == [row for row in range(len(cards)) if row not in refused]


def test_an_installation_with_such_tokens_can_accept_them() -> None:
    outcome = decoded(NUMBERS, TimeLimits(LIMITS.lateness_ms, LIMITS.skew_ms, refuse_card_numbers=False))
    assert outcome.rejections == []


def test_a_card_number_is_reported_before_times_and_partitions() -> None:
    values = [record(card_id=NUMBERS[0], event_time=0), record(card_id=NUMBERS[0], event_time=2 * NOW)]
    outcome = transactions.decode(records(values, partitions=[0, 1]), LIMITS, ONE)
    assert [rejection.reason for rejection in outcome.rejections] == [Reason.CARD_NUMBER] * 2


def test_the_simulators_cards_are_tokens() -> None:
    assert not any(are_refused(World.create(seed=1, cards=20_000).cards.ids.to_pylist()))


def test_the_check_takes_little_time() -> None:
    ids = pa.array([f"{row:019}".encode() for row in range(100_000)], pa.binary())
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        matches = luhn.find_card_numbers(ids)
        took.append(time.perf_counter() - begin)
        assert matches.sum() == len(ids) / 10
    assert min(took) / len(ids) < 2e-7  # 0.03 us on a quiet machine
